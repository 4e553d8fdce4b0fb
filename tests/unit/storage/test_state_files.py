"""The names of the files of Spark's state."""

from __future__ import annotations

import pytest

from sluicegate.storage.state_files import StateFile, state_file

STORE = "state/0/3/"
JOINED = f"{STORE}left-keyToNumValues/"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (f"{STORE}7.changelog", StateFile(f"{STORE}7.changelog", STORE, 7, False, False)),  # noqa: FBT003 - a field
        (f"{STORE}7.zip", StateFile(f"{STORE}7.zip", STORE, 7, True, False)),  # noqa: FBT003 - a field
        (f"{JOINED}7.delta", StateFile(f"{JOINED}7.delta", JOINED, 7, False, False)),  # noqa: FBT003 - a field
        (f"{JOINED}7.snapshot.crc", StateFile(f"{JOINED}7.snapshot.crc", JOINED, 7, True, True)),  # noqa: FBT003 - a field
        (f"{STORE}SSTs/000007-1a2b.sst", None),
        (f"{STORE}_metadata/schema", None),
        ("state/0/_metadata/metadata", None),
        ("offsets/7", None),
    ],
)
def test_the_version_of_a_state_file_is_in_its_name(name: str, found: StateFile | None) -> None:
    assert state_file(name) == found
