"""infra/gobuild.py: what cannot be built is left out with its reason, S3 as the example."""

from collections.abc import Callable
from pathlib import Path

import pytest

from infra import kubernetes, versitygw
from infra.gobuild import BuildError
from infra.images.collector import COLLECTOR
from infra.versions import OTELCOL_SUM, VERSITYGW
from infra.work import cache_folder


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLUICEGATE_WORK", str(tmp_path))
    monkeypatch.setenv("SLUICEGATE_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def answering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Give what puts a Go on the PATH that is new enough and does this, as cases of a shell."""

    def put(cases: str) -> None:
        go = tmp_path / "bin" / "go"
        go.parent.mkdir()
        go.write_text(f"#!/bin/sh\ncase $1 in\nenv) echo go1.99.0;;\n{cases}\nesac\n")
        go.chmod(0o755)
        monkeypatch.setenv("PATH", str(go.parent), prepend=":")

    return put


def test_a_build_that_fails_says_why_and_the_reason_is_kept(
    answering: Callable[[str], None],
) -> None:
    answering("*) echo no modules here; exit 1;;")
    with pytest.raises(BuildError, match="no modules here"):
        versitygw.build()
    assert "no modules here" in versitygw.gap()
    assert versitygw.main() == 0


def test_it_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(versitygw.OFF_VARIABLE, "1")
    assert versitygw.main() == 0
    assert versitygw.OFF_VARIABLE in versitygw.gap()


def test_a_server_that_is_there_leaves_no_gap() -> None:
    versitygw.binary().parent.mkdir(parents=True)
    versitygw.binary().touch()
    assert versitygw.gap() == ""
    assert versitygw.build() == versitygw.binary()


def test_a_module_with_another_hash_is_not_built(answering: Callable[[str], None]) -> None:
    answering("""mod) echo '{"Sum": "h1:another"}';;""")
    with pytest.raises(BuildError, match="h1:another"):
        versitygw.build()


def test_a_program_of_ours_that_links_something_else_is_refused(
    answering: Callable[[str], None],
) -> None:
    linked = "made: go1.99.0\\n\\tdep\\texample/one\\tv1.0.0\\th1:another\\n"
    answering(f"build) touch ../made;;\nversion) printf '{linked}';;")
    with pytest.raises(BuildError, match=f"hash .*, not {OTELCOL_SUM}"):
        COLLECTOR.build()
    assert not COLLECTOR.binary.exists()


def test_what_is_built_is_kept_apart_by_version_and_machine_outside_the_clone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLUICEGATE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "sluicegate"
    assert versitygw.binary().parent == cache_folder() / "bin"
    assert VERSITYGW in versitygw.binary().name


def test_an_api_server_needs_its_etcd(monkeypatch: pytest.MonkeyPatch) -> None:
    kubernetes.API_SERVER.binary.parent.mkdir(parents=True)
    kubernetes.API_SERVER.binary.touch()
    assert "etcd is not built" in kubernetes.gap()
    monkeypatch.setenv(kubernetes.OFF_VARIABLE, "1")
    assert kubernetes.main() == 0
    assert kubernetes.OFF_VARIABLE in kubernetes.gap()


def test_parts_of_kubernetes_are_asked_for_as_they_were_published() -> None:
    pins = """require (
	k8s.io/api v0.0.0
	k8s.io/klog/v2 v2.140.0
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
)
"""
    found = kubernetes._with_published_parts(pins)
    assert "\tk8s.io/api v0.37.1\n" in found
    assert "k8s.io/api => k8s.io/api v0.37.1" in found
    assert "staging" not in found
    assert "k8s.io/klog/v2 v2.140.0" in found


def test_sums_of_modules_that_a_release_leaves_out_are_of_its_own_modules_only() -> None:
    for program, owner in (
        (kubernetes.API_SERVER, "k8s.io/"),
        (kubernetes.ETCD_SERVER, "go.etcd.io/"),
    ):
        assert program.sums
        lines = program.sums.read_text().splitlines()
        assert lines
        assert all(line.startswith(owner) for line in lines)
