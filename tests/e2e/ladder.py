"""The console's ladder, who has which epoch, compared with the epoch log and the sinks. Pure."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_DECIDED, _COMMITTED = "decided", "committed by Spark"
_SECTION = re.compile(r'<section aria-labelledby="ladder">(.*?)</section>', re.DOTALL)
_RUNG = re.compile(
    r'<tr class="\w*"><th scope="row">(?P<who>[^<]*)</th>\s*'
    r'<td class="num">(?P<epoch>[^<]*)</td>\s*<td>(?P<doubt>in doubt: )?(?P<note>[^<]*)</td>'
)


@dataclass(frozen=True)
class Decided:
    """The newest decided epoch: for each sink, what the marker of each part with rows says."""

    epoch: int
    sinks: Mapping[str, list[str]]


@dataclass(frozen=True)
class Rung:
    """A line of the ladder."""

    epoch: int | None
    note: str
    in_doubt: bool


@dataclass(frozen=True)
class Ladder:
    """The lines by who they are about: 'decided', a sink, 'committed by Spark'."""

    rungs: Mapping[str, Rung] = field(default_factory=dict)

    @classmethod
    def of(cls, page: str) -> Ladder:
        """Return the ladder of a job's page; without one it has no lines."""
        section = _SECTION.search(page)
        found = _RUNG.finditer(section[1]) if section else ()
        return cls(
            {
                html.unescape(rung["who"]): Rung(
                    int(rung["epoch"].replace(",", "")) if rung["epoch"][:1].isdecimal() else None,
                    html.unescape(rung["note"]).strip(),
                    bool(rung["doubt"]),
                )
                for rung in found
            }
        )

    def contradictions(self, decided: Decided, *, in_doubt: bool) -> list[str]:
        """Return what the ladder says that the log and the markers of the sinks do not; empty if it is right.

        Args:
            decided: by the log and the sinks.
            in_doubt: whether some sink may lack that epoch.
        """
        return list(self._contradictions(decided, in_doubt=in_doubt))

    def _contradictions(self, decided: Decided, *, in_doubt: bool) -> Iterator[str]:
        epochs = {who: rung.epoch for who, rung in self.rungs.items()}
        if epochs.get(_DECIDED) != decided.epoch:
            yield f"epoch {epochs.get(_DECIDED)} is decided"
        possible: set[int | None] = {decided.epoch - in_doubt}
        if in_doubt:
            possible.add(None)
        if _COMMITTED in self.rungs and "overlap" in self.rungs[_COMMITTED].note:
            possible.add(decided.epoch)  # Spark commits an epoch that is being applied
        if epochs.get(_COMMITTED) not in possible:
            yield f"Spark has committed epoch {epochs.get(_COMMITTED)}"
        for sink, states in decided.sinks.items():
            rung = self.rungs.get(sink)
            if rung is None:
                yield f"there is no sink {sink}"
                continue
            if rung.in_doubt != (in_doubt and bool(states)):
                yield f"{sink} is {'' if rung.in_doubt else 'not '}in doubt"
            applied = all(state.startswith("applied") for state in states)
            if not rung.in_doubt and not applied:
                yield f"{sink} {rung.note}, but its markers: {states}"
