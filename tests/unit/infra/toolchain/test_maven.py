"""infra/toolchain/maven.py trusts nothing that its lock file does not pin."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.toolchain import maven

ONE = maven.Coordinate("org.example", "thing", "1.0")
CLASSIFIED = maven.Coordinate("org.example", "thing", "1.0", "linux")


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a work folder of the test's own, and a Maven that answers with one jar."""
    monkeypatch.setenv("SLUICEGATE_WORK", str(tmp_path / "work"))

    def answer(scratch: Path, module: str, pattern: str) -> None:
        assert "thing" in module
        assert pattern.startswith(str(scratch))
        (scratch / "out").mkdir()
        (scratch / "out" / ONE.file).write_bytes(b"a jar")

    monkeypatch.setattr(maven, "_ivy", answer)
    return tmp_path


def lock(folder: Path, digest: str) -> Path:
    path = folder / "jars.lock"
    path.write_text(f"# comment\n[example]\n{ONE} {digest}\n", encoding="utf-8")
    return path


def digest_of(content: bytes, folder: Path) -> str:
    path = folder / "content"
    path.write_bytes(content)
    return maven.sha256(path)


@pytest.mark.parametrize("coordinate", [ONE, CLASSIFIED])
def test_a_coordinate_reads_back_what_it_writes(coordinate: maven.Coordinate) -> None:
    assert maven.Coordinate.parse(str(coordinate)) == coordinate


def test_the_right_jar_is_installed(work: Path) -> None:
    pinned = lock(work, digest_of(b"a jar", work))
    folder = maven.fetch("example", pinned)
    assert (folder / ONE.file).read_bytes() == b"a jar"


def test_a_jar_with_another_digest_is_refused_and_not_installed(work: Path) -> None:
    pinned = lock(work, digest_of(b"another jar", work))
    with pytest.raises(maven.JarError, match="is not the jar that"):
        maven.fetch("example", pinned)
    assert not maven.folder("example").exists()


def test_a_second_fetch_asks_nobody(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = lock(work, digest_of(b"a jar", work))
    maven.fetch("example", pinned)
    monkeypatch.setattr(maven, "_ivy", None)
    maven.fetch("example", pinned)


def test_a_set_that_is_not_locked_is_refused(work: Path) -> None:
    with pytest.raises(maven.JarError, match="no set 'other'"):
        maven.fetch("other", lock(work, "0"))


def test_the_lock_file_pins_every_set() -> None:
    assert set(maven.read_lock()) == set(maven.SETS)


def test_the_spark_set_repeats_no_jar_of_pyspark() -> None:
    shipped = {jar.name.rsplit("-", 1)[0] for jar in maven.pyspark_jars().glob("*.jar")}
    assert {jar.name for jar in maven.read_lock()["spark"]} & shipped == set()


def test_two_fetches_at_once_ask_once(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process of the tests starts its own services, at the same time, on a new machine."""
    pinned = lock(work, digest_of(b"a jar", work))
    asked: list[str] = []

    def slow_answer(scratch: Path, _: str, pattern: str) -> None:
        asked.append(pattern)
        time.sleep(0.2)
        (scratch / "out").mkdir()
        (scratch / "out" / ONE.file).write_bytes(b"a jar")

    monkeypatch.setattr(maven, "_ivy", slow_answer)
    with ThreadPoolExecutor(2) as both:
        folders = list(both.map(lambda _: maven.fetch("example", pinned), range(2)))
    assert len(asked) == 1
    assert folders[0] == folders[1]


def test_java_gets_the_proxy_that_pip_and_go_read_from_the_environment() -> None:
    for proxy in ("http://proxy:3128", "proxy:3128"):
        given = {"https_proxy": proxy, "NO_PROXY": "localhost, .example.org,"}
        assert maven.proxy_options(given) == [
            "-Dhttps.proxyHost=proxy",
            "-Dhttps.proxyPort=3128",
            "-Dhttp.nonProxyHosts=localhost|*.localhost|example.org|*.example.org",
        ]
    assert maven.proxy_options({"NO_PROXY": "localhost"}) == []
