"""The tree of lineages and savepoints."""

from __future__ import annotations

from dataclasses import replace

from sluicegate.console.history import History, history
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


def outline(tree: History | None) -> list[str]:
    """Return the names in a tree, each after as many dots as it has levels above."""
    assert tree is not None
    return [
        "." * row.depth + (row.savepoint.url if row.savepoint else row.lineage + "*" * row.is_own)
        for row in tree.rows
    ]


def test_the_tree_says_what_was_restored_from_what() -> None:
    jobs = [of("a"), of("b", "a", 3), of("c", "b", 9), of("d", "a", 6), of("other")]
    savepoints = [savepoint("a", 5), savepoint("a", 2), savepoint("b", 8), savepoint("other", 1)]
    assert outline(history(jobs[1], jobs, savepoints)) == [
        *("a", ".a@2", "..b*", "...b@8", "....c"),
        *(".a@5", "..d"),
    ]


def test_a_lineage_whose_savepoint_or_parent_is_gone_is_still_in_the_tree() -> None:
    jobs = [of("b", "a", 3), of("c", "b", 9)]
    assert outline(history(jobs[1], jobs, [])) == ["a", ".b", "..c*"]


def test_lineages_that_are_their_own_ancestors_end() -> None:
    jobs = [of("a", "b"), of("b", "a")]
    assert outline(history(jobs[0], jobs, [])) == ["b", ".a*"]


def test_the_lineages_nearest_to_the_job_are_shown_and_the_others_counted() -> None:
    """Each upgrade by a savepoint adds a lineage, for years."""
    jobs = [of(str(n), str(n - 1) if n else "", n) for n in range(2_000)]
    savepoints = [savepoint(str(n), n) for n in range(2_000)]
    for own, first, last in ((1_000, 990, 1_009), (1_999, 1_980, 1_999), (0, 0, 19)):
        tree = history(jobs[own], jobs, savepoints)
        assert tree is not None
        shown = [row.lineage for row in tree.rows if row.savepoint is None]
        assert shown == [str(n) for n in range(first, last + 1)]
        assert tree.hidden == 1_980
