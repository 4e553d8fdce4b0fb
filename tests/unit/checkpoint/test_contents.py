"""Which files make a savepoint, in both layouts of Spark's state."""

from __future__ import annotations

import pytest

from sluicegate.checkpoint.contents import Vanished, chosen
from sluicegate.protocol.errors import SavepointRefused

from .made import STORE, snapshot

LOGS = {f"{log}/{n}": b"" for log in ("offsets", "commits") for n in range(9)}


def pick(files: dict[str, bytes], epoch: int) -> set[str]:
    """Return what is chosen beside offsets and commits."""
    found = set(chosen(files, epoch, files.get))
    return {name for name in found if not name.startswith(("offsets/", "commits/"))}


def test_the_last_two_of_offsets_and_commits_are_taken() -> None:
    found = chosen(LOGS, 5, LOGS.get)
    assert found == ["commits/4", "commits/5", "offsets/4", "offsets/5"]


@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_a_log_without_the_epoch_has_vanished(log: str) -> None:
    files = {name: b"" for name in LOGS if name != f"{log}/5"}
    with pytest.raises(Vanished, match=f"{log}/5"):
        chosen(files, 5, files.get)


def test_a_hdfs_store_is_the_newest_snapshot_up_to_the_version_and_the_changes_after_it() -> None:
    state = {f"{STORE}{v}.delta": b"" for v in range(1, 9)}
    state |= {f"{STORE}{v}.snapshot": b"" for v in (2, 4, 8)}
    assert pick(LOGS | state, 5) == {f"{STORE}{f}" for f in ("4.snapshot", "5.delta", "6.delta")}


def test_a_store_without_a_snapshot_is_all_its_changes() -> None:
    state = {f"{STORE}{v}.delta": b"" for v in range(1, 9)}
    assert pick(LOGS | state, 2) == {f"{STORE}{v}.delta" for v in (1, 2, 3)}


def test_a_rocksdb_store_is_a_snapshot_with_the_files_that_it_names_and_the_changes() -> None:
    state = {f"{STORE}{v}.changelog": b"" for v in range(1, 9)}
    state |= {f"{STORE}4.zip": snapshot("a.sst", "b.sst", logs=("l.log",))}
    state |= {f"{STORE}SSTs/{name}.sst": b"" for name in "abc"} | {f"{STORE}logs/l.log": b""}
    found = pick(LOGS | state, 4)
    named = ("4.zip", "SSTs/a.sst", "SSTs/b.sst", "logs/l.log", "5.changelog")
    assert found == {f"{STORE}{name}" for name in named}


def test_each_store_of_a_join_is_looked_at_by_itself() -> None:
    left, right = f"{STORE}left-keyToNumValues/", f"{STORE}right-keyToNumValues/"
    state = {f"{s}{v}.delta": b"" for s in (left, right) for v in range(1, 9)}
    state[f"{left}5.snapshot"] = b""
    found = pick(LOGS | state, 5)
    assert found == {f"{left}5.snapshot", f"{left}6.delta"} | {
        f"{right}{v}.delta" for v in range(1, 7)
    }


def test_sparks_checksums_go_with_their_files() -> None:
    state = {f"{STORE}{v}.delta{tail}": b"" for v in range(1, 5) for tail in ("", ".crc")}
    assert pick(LOGS | state, 0) == {f"{STORE}1.delta", f"{STORE}1.delta.crc"}


def test_a_missing_change_has_vanished() -> None:
    state = {f"{STORE}{v}.delta": b"" for v in (1, 2, 4, 5, 6)}
    with pytest.raises(Vanished, match=r"state/0/0/3"):
        pick(LOGS | state, 5)


def test_what_belongs_to_the_lineage_stays_behind() -> None:
    ours = ("epochs/5", "staging/6/a/s/0", "requests/stop-l-1", "lineage.json", "metadata")
    assert pick(LOGS | dict.fromkeys(ours, b""), 5) == set()


def test_what_is_not_known_here_is_taken_as_it_is() -> None:
    """Sources, the state's metadata, and what a job keeps on its checkpoint volume."""
    other = {"sources/0/3": b"", "state/0/_metadata/metadata": b"", "received/12": b""}
    other |= {f"{STORE}_metadata/schema": b""}
    assert pick(LOGS | other, 5) == set(other)


def test_state_of_format_2_is_refused() -> None:
    files = LOGS | {f"{STORE}6_3f6f5abf-bcde-44a0-9af7-41aaf0b5ebfc.zip": b""}
    with pytest.raises(SavepointRefused, match="format 2"):
        pick(files, 5)


@pytest.mark.parametrize("content", [b"no archive", snapshot("a.sst")[:40]])
def test_a_snapshot_that_cannot_be_read_is_refused(content: bytes) -> None:
    with pytest.raises(SavepointRefused, match="cannot be read"):
        pick(LOGS | {f"{STORE}6.zip": content}, 5)


def test_what_a_job_keeps_beside_its_epochs_is_taken_as_it_is() -> None:
    """The log of lines from a socket, say; but not the proof of an endpoint, which is another one's."""
    kept = {f"received/{n}": b"" for n in range(3)} | {"sources/0/0": b""}
    ours = {"preflight/0a1b": b"", "staging/5/a/k/0-0-0-0": b"", "epochs/5": b""}
    assert pick(LOGS | kept | ours, 5) == set(kept)
