"""Specs of jobs that run once, and of jobs with a schedule."""

from __future__ import annotations

from sluicegate_operator.api.schedule import RunSchedule
from tests.unit.operator.builders import spec

ONCE = spec(trigger="Once")
HOURLY = spec(trigger="Once", schedule=RunSchedule(cron="0 * * * *"))
ON_TIME = spec(trigger="Once", schedule=RunSchedule(cron="30 7 * * *", starting_deadline_s=60))
"""Due half an hour before NOW, and too late since."""
REPLACING = spec(
    trigger="Once",
    schedule=RunSchedule(cron="0 * * * *", concurrency_policy="Replace", starting_deadline_s=60),
)
"""A run that is due ends the one before."""
