"""Drivers that do not start."""

from __future__ import annotations

from typing import Any

from sluicegate_operator.api.streaming_job_settings import StartupSettings
from sluicegate_operator.reconcile.observed import Node, Refusal
from tests.unit.operator.builders import NOW, spec

QUOTA = Refusal(1, 1, "QuotaExceeded", "exceeded quota: pods=3")
NEVER_RAN: dict[str, Any] = {
    "phase": "Pending",
    "running_at": None,
    "progress": None,
    "node": Node(),
    "seen_at": NOW - 30,
}
IMPATIENT = spec(startup=StartupSettings(start_timeout_s=100, start_attempts=1))
