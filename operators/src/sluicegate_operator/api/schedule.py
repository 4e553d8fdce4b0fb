"""Schedules of batch jobs and savepoints: cron expressions that the API server validates."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from sluicegate.settings.schema import option
from sluicegate_operator.api.fields import Rule


def _field(number: str, *names: str, **also: str) -> str:
    """Return the pattern of a field: a list of values, ranges and steps."""
    value = f"(?:{'|'.join((f'0*{number}', *names))})"
    item = rf"(?:\*|{value}(?:-{value})?)(?:/0*[1-9][0-9]*)?"
    items = "|".join((item, *(text.replace("VALUE", value) for text in also.values())))
    return f"(?:{items})(?:,(?:{items}))*"


_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FIELDS = (
    _field("[0-5]?[0-9]"),
    _field("(?:1?[0-9]|2[0-3])"),
    _field("(?:[1-9]|[12][0-9]|3[01])", last="LW?(?:/0*[1-9][0-9]*)?"),
    _field("(?:[1-9]|1[0-2])", *_MONTHS),
    _field("[0-7]", *_DAYS, nth="VALUE#0*[1-5]", last="0*[0-7]L"),
)
_CRON = "^(?i:" + r"\s+".join(_FIELDS) + ")$"
"""Everything that cronsim accepts in five fields. The operator rejects what a pattern cannot: ranges that
end before they begin, and days that no month has."""


FORBID, REPLACE, ALLOW = "Forbid", "Replace", "Allow"


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """When savepoints are taken; for a batch job see `RunSchedule`."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.cron.matches(r'{_CRON}')",
            "cron has a field that is not valid; its fields are minute (0-59), hour (0-23), day of month "
            "(1-31, L), month (1-12, JAN-DEC), day of week (0-7, SUN-SAT), as in 30 2 * * MON-FRI",
            lambda schedule: re.fullmatch(_CRON, schedule.cron) is not None,
        ),
    )

    cron: str = option(
        ...,
        "Cron expression with five fields: minute, hour, day of month, month, day of week.",
        pattern=r"^\S+(\s+\S+){4}$",
    )
    time_zone: str = option(
        "UTC", "Time zone of the cron expression: an IANA name such as Europe/Berlin."
    )
    starting_deadline_s: float = option(
        0.0,
        "A run that cannot start within this time after its scheduled time is skipped. "
        "0: it starts however late it is.",
        at_least=0,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSchedule(Schedule):
    """When a batch job runs."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        *Schedule.RULES,
        Rule(
            f"self.concurrencyPolicy != '{ALLOW}'",
            "concurrencyPolicy Allow would run two drivers with one checkpoint, and the later one fences the "
            "earlier one; use Forbid or Replace, or a StreamingJob of its own for each input",
            lambda schedule: schedule.concurrency_policy != ALLOW,
        ),
    )

    concurrency_policy: str = option(
        FORBID,
        "What happens when a run is due and the one before has not ended, as in a CronJob. Forbid: the new "
        "run starts after it. Replace: its driver is stopped at the end of its epoch, or killed after "
        "terminationGracePeriodSeconds, and the new run continues from there. Allow is refused: a "
        "checkpoint has one driver at a time.",
        choices=(FORBID, REPLACE, ALLOW),
    )
