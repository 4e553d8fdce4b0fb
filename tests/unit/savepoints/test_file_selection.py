"""The files that a savepoint needs, in both layouts of Spark's state."""

from __future__ import annotations

import io
import zipfile

import pytest

from sluicegate.errors import SavepointRefused
from sluicegate.savepoints.file_selection import FilePruned, select_files
from tests.unit.savepoints.builders import STORE, snapshot

LOGS = {f"{log}/{n}": b"" for log in ("offsets", "commits") for n in range(9)}


def select(files: dict[str, bytes], epoch: int) -> set[str]:
    """Return the selected files other than offsets and commits."""
    selected = set(select_files(files, epoch, files.get))
    return {name for name in selected if not name.startswith(("offsets/", "commits/"))}


def test_the_last_two_offsets_and_commits_are_selected() -> None:
    selected = select_files(LOGS, 5, LOGS.get)
    assert selected == ["commits/4", "commits/5", "offsets/4", "offsets/5"]


@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_a_missing_log_file_counts_as_pruned(log: str) -> None:
    files = {name: b"" for name in LOGS if name != f"{log}/5"}
    with pytest.raises(FilePruned, match=f"{log}/5"):
        select_files(files, 5, files.get)


@pytest.mark.parametrize("folder", ["ends", "failures", "starts"])
def test_what_is_recorded_about_drivers_is_not_selected(folder: str) -> None:
    assert select(LOGS | {f"{folder}/1": b""}, 5) == set()


def test_an_hdfs_store_needs_the_newest_snapshot_and_the_changes_after_it() -> None:
    state = {f"{STORE}{v}.delta": b"" for v in range(1, 9)}
    state |= {f"{STORE}{v}.snapshot": b"" for v in (2, 4, 7)}  # the last is of epoch 6
    assert select(LOGS | state, 5) == {f"{STORE}{f}" for f in ("4.snapshot", "5.delta", "6.delta")}


def test_a_store_without_a_snapshot_needs_all_changes() -> None:
    state = {f"{STORE}{v}.delta": b"" for v in range(1, 9)}
    assert select(LOGS | state, 2) == {f"{STORE}{v}.delta" for v in (1, 2, 3)}


def test_a_rocksdb_store_needs_a_snapshot_with_its_files_and_the_changes() -> None:
    state = {f"{STORE}{v}.changelog": b"" for v in range(1, 9)}
    state |= {f"{STORE}4.zip": snapshot("a.sst", "b.sst", logs=("l.log",))}
    state |= {f"{STORE}SSTs/{name}.sst": b"" for name in "abc"} | {f"{STORE}logs/l.log": b""}
    selected = select(LOGS | state, 4)
    named = ("4.zip", "SSTs/a.sst", "SSTs/b.sst", "logs/l.log", "5.changelog")
    assert selected == {f"{STORE}{name}" for name in named}


def test_a_rocksdb_snapshot_may_have_no_log_files() -> None:
    state = {f"{STORE}6.zip": snapshot("a.sst"), f"{STORE}SSTs/a.sst": b""}
    assert select(LOGS | state, 5) == set(state)


def test_each_store_of_a_join_is_selected_separately() -> None:
    left, right = f"{STORE}left-keyToNumValues/", f"{STORE}right-keyToNumValues/"
    state = {f"{s}{v}.delta": b"" for s in (left, right) for v in range(1, 9)}
    state[f"{left}5.snapshot"] = b""
    selected = select(LOGS | state, 5)
    assert selected == {f"{left}5.snapshot", f"{left}6.delta"} | {
        f"{right}{v}.delta" for v in range(1, 7)
    }


def test_sparks_checksums_are_selected_with_their_files() -> None:
    state = {f"{STORE}{v}.delta{tail}": b"" for v in range(1, 9) for tail in ("", ".crc")}
    assert select(LOGS | state, 6) == {name for name in state if "8.delta" not in name}


def test_a_missing_change_counts_as_pruned() -> None:
    state = {f"{STORE}{v}.delta": b"" for v in (1, 2, 4, 5, 6)}
    with pytest.raises(FilePruned, match=r"state/0/0/3"):
        select(LOGS | state, 5)


def test_files_of_the_lineage_are_not_selected() -> None:
    log = ("epochs/5", "epochs/5.report", "staging/6/a/s/0", "requests/stop-l-1")
    excluded = (*log, "lineage.json", "metadata")
    assert select(LOGS | dict.fromkeys(excluded, b""), 5) == set()


def test_unknown_files_are_selected() -> None:
    """Sources, the metadata of the state, and files that a job stores in its checkpoint."""
    other = {"sources/0/3": b"", "state/0/_metadata/metadata": b"", "received/12": b""}
    other |= {f"{STORE}_metadata/schema": b""}
    assert select(LOGS | other, 5) == set(other)


def test_state_in_format_2_is_rejected() -> None:
    files = LOGS | {f"{STORE}6_3f6f5abf-bcde-44a0-9af7-41aaf0b5ebfc.zip": b""}
    with pytest.raises(SavepointRefused, match="format 2"):
        select(files, 5)


def archive(name: str, content: bytes) -> bytes:
    """Return a zip file with one file in it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as files:
        files.writestr(name, content)
    return packed.getvalue()


BROKEN_SNAPSHOTS = {
    "no archive": b"no archive",
    "cut short": snapshot("a.sst")[:40],
    "no metadata": archive("other", b"v1\n{}"),
    "no JSON": archive("metadata", b"v1\n{"),
    "no files": archive("metadata", b"v1\n{}"),
    "no object": archive("metadata", b"v1\n[]"),
    "another version": archive("metadata", b'v2\n{"sstFiles": []}'),
}


@pytest.mark.parametrize("how", BROKEN_SNAPSHOTS)
def test_a_snapshot_that_does_not_list_its_files_is_rejected(how: str) -> None:
    """A savepoint without them could not be restored."""
    with pytest.raises(SavepointRefused, match="cannot be read"):
        select(LOGS | {f"{STORE}6.zip": BROKEN_SNAPSHOTS[how]}, 5)


def test_a_snapshot_that_spark_deletes_before_it_is_read_counts_as_pruned() -> None:
    with pytest.raises(FilePruned, match=r"6\.zip"):
        select_files({*LOGS, f"{STORE}6.zip"}, 5, lambda _: None)


def test_files_of_the_job_are_selected_but_not_those_of_the_lineage() -> None:
    """The write-ahead log of a socket source is; the proof of an endpoint is not."""
    included = {f"received/{n}": b"" for n in range(3)} | {"sources/0/0": b""}
    excluded = {"preflight/0a1b": b"", "staging/5/a/k/0-0-0-0": b"", "epochs/5": b""}
    assert select(LOGS | included | excluded, 5) == set(included)
