"""infra/toolchain/javac.py: the same sources make the same jar, and a mistake installs nothing."""

import hashlib
from pathlib import Path

import pytest

from infra.toolchain import javac, maven

GOOD = "package a;\n/** Nothing. */\npublic final class A { }\n"


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Yield a source folder, and a jar folder of the test's own with the real compiler."""
    spark, compiler = tmp_path / "spark", maven.folder("compiler")
    spark.mkdir()
    monkeypatch.setattr(maven, "fetch", lambda name: spark if name == "spark" else compiler)
    folder = tmp_path / "java"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "A.java").write_text(GOOD)
    return folder


def test_a_jar_is_made_once_and_is_always_the_same(sources: Path) -> None:
    made = javac.build(sources)
    first, at = hashlib.sha256(made.read_bytes()).digest(), made.stat().st_mtime_ns
    assert javac.build(sources).stat().st_mtime_ns == at
    made.unlink()
    assert hashlib.sha256(javac.build(sources).read_bytes()).digest() == first


def test_a_change_replaces_the_jar(sources: Path) -> None:
    old = javac.build(sources)
    (sources / "a" / "A.java").write_text(GOOD.replace("Nothing", "Something"))
    new = javac.build(sources)
    assert sorted(new.parent.glob("*.jar")) == [new]
    assert old != new


def test_sources_that_do_not_compile_install_nothing(sources: Path) -> None:
    (sources / "a" / "A.java").write_text("package a; public final class A { int x = oops; }\n")
    with pytest.raises(maven.JarError, match=r"(?s)does not compile.*oops"):
        javac.build(sources)
    assert list((sources.parent / "spark").glob("*.jar")) == []
