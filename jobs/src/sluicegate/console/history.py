"""The tree of lineages and savepoints that a job belongs to: what was restored from what. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sluicegate.console.model import JobFacts
from sluicegate.savepoints.catalog import Savepoint

_SHOWN = 20
"""How many lineages are shown, those nearest to the job: each upgrade by a savepoint adds one."""


@dataclass(frozen=True)
class Row:
    """A lineage, or a savepoint of one. What was restored from it follows, one level deeper.

    Args:
        depth: its level in the tree, 0 for the root.
        lineage: its id; that of its parent for a savepoint.
        job: the checkpoint of the lineage, None if none was found.
        savepoint: None for a lineage.
        is_own: whether it is the lineage of the job whose tree this is.
    """

    depth: int
    lineage: str
    job: JobFacts | None = None
    savepoint: Savepoint | None = None
    is_own: bool = False


@dataclass(frozen=True)
class History:
    """The part of a tree that is near a job.

    Args:
        rows: from the oldest lineage on, each before what was restored from it.
        hidden: how many lineages of the tree are not among them.
    """

    rows: tuple[Row, ...]
    hidden: int


def history(
    job: JobFacts, jobs: Iterable[JobFacts], savepoints: Iterable[Savepoint]
) -> History | None:
    """Return the lineages near that of a job, None for a job without a lineage."""
    if job.lineage is None:
        return None
    known = {each.lineage.id: each for each in (*jobs, job) if each.lineage is not None}
    children = defaultdict(list)
    for id_, each in known.items():
        if each.lineage is not None and each.lineage.parent:
            children[each.lineage.parent].append(id_)
    nearest = _by_distance(job.lineage.id, known, children)
    tree = _Tree(job.lineage.id, known, children, frozenset(nearest[:_SHOWN]), tuple(savepoints))
    rows = tuple(tree.rows())
    return History(rows, len(nearest) - sum(row.savepoint is None for row in rows))


def _parent(id_: str, known: Mapping[str, JobFacts]) -> str:
    """Return the parent of a lineage, empty if it has none or its checkpoint was not found."""
    of = known.get(id_)
    return of.lineage.parent if of and of.lineage else ""


def _by_distance(
    own: str, known: Mapping[str, JobFacts], children: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return all lineages of the tree, the nearest to a lineage first."""
    found = [own]
    seen = {own}
    for id_ in found:  # grows meanwhile
        for other in (_parent(id_, known), *children.get(id_, ())):
            if other and other not in seen:
                seen.add(other)
                found.append(other)
    return found


@dataclass(frozen=True)
class _Tree:
    own: str
    known: Mapping[str, JobFacts]
    children: Mapping[str, Sequence[str]]
    shown: frozenset[str]
    savepoints: tuple[Savepoint, ...]

    def rows(self) -> Iterator[Row]:
        """Yield the lineages that are shown, with their savepoints."""
        seen: set[str] = set()
        stack = [Row(0, self._root())]
        while stack:
            row = stack.pop()
            if row.savepoint is not None:
                yield row
            elif row.lineage in self.shown and row.lineage not in seen:
                seen.add(row.lineage)
                of = self.known.get(row.lineage)
                yield Row(row.depth, row.lineage, of, is_own=row.lineage == self.own)
                stack += reversed(self._below(row))

    def _root(self) -> str:
        root, seen = self.own, {self.own}
        # no lineage of ours is its own ancestor, but what is stored may be anything
        while (parent := _parent(root, self.known)) in self.shown - seen:
            root = parent
            seen.add(root)
        return root

    def _below(self, of: Row) -> list[Row]:
        """Return the savepoints of a lineage, each before what was restored from it, then the others."""
        children = list(self.children.get(of.lineage, ()))
        taken = [
            (s.manifest.epoch, s.url, s)
            for s in self.savepoints
            if s.manifest and s.manifest.ancestry.lineage == of.lineage
        ]
        below = []
        for epoch, _, savepoint in sorted(taken, key=lambda each: each[:2]):
            restored = [child for child in children if self._first_epoch(child) == epoch + 1]
            # two savepoints of one epoch: nothing says which was restored, so the first one has it
            children = [child for child in children if child not in restored]
            below.append(Row(of.depth + 1, of.lineage, savepoint=savepoint))
            below += [Row(of.depth + 2, child) for child in restored]
        return below + [Row(of.depth + 1, child) for child in children]

    def _first_epoch(self, id_: str) -> int:
        of = self.known[id_].lineage
        assert of is not None
        return of.first_epoch
