"""infra/versitygw.py: S3 is left out with its reason where it cannot be built."""

from pathlib import Path

import pytest

from infra import versitygw


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLUICEGATE_WORK", str(tmp_path))
    return tmp_path


def test_a_build_that_fails_says_why_and_the_reason_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(
        "#!/bin/sh\ncase $1 in env) echo go1.99.0;; *) echo no modules here; exit 1;; esac\n"
    )
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(go.parent), prepend=":")
    with pytest.raises(versitygw.BuildError, match="no modules here"):
        versitygw.build()
    assert "no modules here" in versitygw.gap()
    assert versitygw.main() == 0


def test_it_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(versitygw.OFF_VARIABLE, "1")
    assert versitygw.main() == 0
    assert versitygw.OFF_VARIABLE in versitygw.gap()


def test_a_server_that_is_there_leaves_no_gap() -> None:
    versitygw.binary().parent.mkdir()
    versitygw.binary().touch()
    assert versitygw.gap() == ""
    assert versitygw.build() == versitygw.binary()


def test_a_module_with_another_hash_is_not_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(
        """#!/bin/sh\ncase $1 in env) echo go1.99.0;; mod) echo '{"Sum": "h1:another"}';; esac\n"""
    )
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(go.parent), prepend=":")
    with pytest.raises(versitygw.BuildError, match="h1:another"):
        versitygw.build()
