"""The tree of lineages and savepoints that a job belongs to: what was restored from what. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sluicegate.console.model import JobFacts
from sluicegate.savepoints.catalog import Savepoint


@dataclass(frozen=True)
class Branch:
    """A lineage, or a savepoint of one, with what came from it.

    Args:
        lineage: its id; that of its parent for a savepoint.
        job: the checkpoint of the lineage, None if none was found.
        savepoint: None for a lineage.
        is_own: whether it is the lineage of the job whose tree this is.
        branches: the savepoints of a lineage, the lineages restored from a savepoint.
    """

    lineage: str
    job: JobFacts | None = None
    savepoint: Savepoint | None = None
    is_own: bool = False
    branches: tuple[Branch, ...] = ()


def history(
    job: JobFacts, jobs: Iterable[JobFacts], savepoints: Iterable[Savepoint]
) -> Branch | None:
    """Return the tree from the oldest known lineage on, None for a job without a lineage."""
    if job.lineage is None:
        return None
    known = {each.lineage.id: each for each in (*jobs, job) if each.lineage is not None}
    root, seen = job.lineage.id, {job.lineage.id}
    while (of := known.get(root)) and of.lineage and of.lineage.parent:
        if of.lineage.parent in seen:
            break  # no lineage of ours is its own ancestor; what is stored may be anything
        root = of.lineage.parent
        seen.add(root)
    return _Tree(job.lineage.id, known, tuple(savepoints)).lineage(root, frozenset())


@dataclass(frozen=True)
class _Tree:
    own: str
    known: dict[str, JobFacts]
    savepoints: tuple[Savepoint, ...]

    def lineage(self, id_: str, above: frozenset[str]) -> Branch:
        """Return a lineage with its savepoints and with what was restored from them."""
        above |= {id_}
        children = [
            each.lineage
            for each in self.known.values()
            if each.lineage and each.lineage.parent == id_ and each.lineage.id not in above
        ]
        taken = [s for s in self.savepoints if s.manifest and s.manifest.ancestry.lineage == id_]
        taken.sort(key=lambda s: (s.manifest.epoch if s.manifest else 0, s.url))
        branches = []
        for savepoint in taken:
            assert savepoint.manifest is not None
            of = [child for child in children if child.first_epoch == savepoint.manifest.epoch + 1]
            # two savepoints of one epoch: nothing says which was restored, so the first one has it
            children = [child for child in children if child not in of]
            restored = tuple(self.lineage(child.id, above) for child in of)
            branches.append(Branch(id_, savepoint=savepoint, branches=restored))
        rest = (self.lineage(child.id, above) for child in children)
        return Branch(id_, self.known.get(id_), None, id_ == self.own, (*branches, *rest))
