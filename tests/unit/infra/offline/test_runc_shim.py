"""infra/offline/kind_node/runc_shim.py: a container gets no capability that its machine lacks."""

import json
import sys
from pathlib import Path

import pytest

from infra.offline.kind_node import runc_shim

STATUS = "Name:\tcat\nCapBnd:\t000001fffeffffff\nCapAmb:\t0\n"


def test_a_sandbox_without_sys_resource_is_recognised() -> None:
    assert runc_shim.lacking(runc_shim.bounding(STATUS), last=40) == {"CAP_SYS_RESOURCE"}


def test_a_machine_with_all_of_them_lacks_nothing() -> None:
    assert runc_shim.lacking((1 << 41) - 1, last=40) == set()


def test_what_cannot_be_had_is_taken_out_of_each_set_and_the_rest_stays() -> None:
    process = {
        "args": ["init"],
        "capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE"], "ambient": []},
    }
    fit = runc_shim.fitted(process, {"CAP_CHOWN"})
    assert fit == {"args": ["init"], "capabilities": {"bounding": ["CAP_CHOWN"], "ambient": []}}


def test_a_process_without_capabilities_stays_as_it_is() -> None:
    assert runc_shim.fitted({"args": ["sh"]}, set()) == {"args": ["sh"]}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("--root /r create --bundle /b --pid-file /p id", [(Path("/b/config.json"), True)]),
        ("--root /r --log /l run --bundle=/b id", [(Path("/b/config.json"), True)]),
        ("create -b /b id", [(Path("/b/config.json"), True)]),
        ("create id", [(Path("config.json"), True)]),
        ("exec --process /tmp/p.json --detach id", [(Path("/tmp/p.json"), False)]),
        ("exec id sh", []),
        ("--root /r state id", []),
        ("kill --all id 9", []),
    ],
)
def test_the_file_that_holds_capabilities_is_found(
    command: str, expected: list[tuple[Path, bool]]
) -> None:
    assert runc_shim.files(command.split()) == expected


def test_it_becomes_runc_with_the_same_arguments_and_a_bundle_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "config.json"
    asked = {"bounding": ["CAP_CHOWN", "CAP_OF_ANOTHER_KERNEL"]}
    bundle.write_text(json.dumps({"process": {"capabilities": asked}, "root": {"path": "r"}}))
    became: list[list[str]] = []
    monkeypatch.setattr(sys, "argv", ["runc", "create", "--bundle", str(tmp_path), "id"])
    monkeypatch.setattr("os.execv", lambda _path, argv: became.append(argv))
    runc_shim.main()
    assert became == [[runc_shim.RUNC, "create", "--bundle", str(tmp_path), "id"]]
    written = json.loads(bundle.read_text())
    assert "CAP_OF_ANOTHER_KERNEL" not in written["process"]["capabilities"]["bounding"]
    assert written["root"] == {"path": "r"}
