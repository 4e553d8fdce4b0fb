"""The tree of lineages and savepoints."""

from __future__ import annotations

from dataclasses import replace

from sluicegate.console.history import Branch, history
from sluicegate.console.model import JobFacts
from sluicegate.savepoints.catalog import Savepoint
from sluicegate.savepoints.manifest import Ancestry, Manifest
from sluicegate.storage.lineage import Lineage
from tests.unit.console.builders import job


def of(lineage: str, parent: str = "", first_epoch: int = 0) -> JobFacts:
    return replace(job(), key=lineage, lineage=Lineage(lineage, "orders", first_epoch, parent))


def savepoint(lineage: str, epoch: int) -> Savepoint:
    ancestry = Ancestry(lineage, epoch, {}, {})
    manifest = Manifest("id", "orders", False, "checkpoint", 0, "0.1.0", ancestry)  # noqa: FBT003
    return Savepoint(f"{lineage}@{epoch}", manifest)


def outline(branch: Branch | None) -> object:
    """Return the names in a tree: [name, children...]."""
    assert branch is not None
    name = branch.savepoint.url if branch.savepoint else branch.lineage + "*" * branch.is_own
    return [name, *map(outline, branch.branches)]


def test_the_tree_says_what_was_restored_from_what() -> None:
    jobs = [of("a"), of("b", "a", 3), of("c", "b", 9), of("d", "a", 6), of("other")]
    savepoints = [savepoint("a", 5), savepoint("a", 2), savepoint("b", 8), savepoint("other", 1)]
    assert outline(history(jobs[1], jobs, savepoints)) == [
        "a",
        ["a@2", ["b*", ["b@8", ["c"]]]],
        ["a@5", ["d"]],
    ]


def test_a_lineage_whose_savepoint_or_parent_is_gone_is_still_in_the_tree() -> None:
    jobs = [of("b", "a", 3), of("c", "b", 9)]
    assert outline(history(jobs[1], jobs, [])) == ["a", ["b", ["c*"]]]


def test_lineages_that_are_their_own_ancestors_end() -> None:
    jobs = [of("a", "b"), of("b", "a")]
    assert outline(history(jobs[0], jobs, [])) == ["b", ["a*"]]
