"""What the resource of a job tells its driver's pod, put over the settings of a packaged job.

Before the job is built, since a job may use its settings otherwise than by `epochs()`. Not here: what
is told (`settings.told`). Called by `options`.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, TypeVar

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.settings.job import JobSettings
from sluicegate.settings.schema import NOTHING_STARTED
from sluicegate.settings.told import LETTERS_VARIABLE, Told

log = logging.getLogger("sluicegate.told")

_TOPIC, _TABLE = "dead_letters", "dead_letter_table"
"""Fields of the settings of jobs that have dead letters."""

S = TypeVar("S", bound=JobSettings)


def as_told(job: str, settings: S) -> S:
    """Return a job's settings with all that the environment tells.

    Raises:
        SettingsInvalid: they cannot work together, or a topic is given for dead letters that the
            job does not have.
    """
    told = Told.read()
    checkpoint, settings = told.over(settings.checkpoint, settings)
    settings = dataclasses.replace(settings, checkpoint=checkpoint)
    topic = told.dead_letter_topic
    if not topic:
        return settings
    names = {field.name for field in dataclasses.fields(settings)}
    if _TOPIC not in names:
        raise SettingsInvalid(
            f"job {job} has no dead letters, and {LETTERS_VARIABLE} names topic {topic} for them",
            data=NOTHING_STARTED,
            do="leave out spec.deadLetterTopic",
        )
    changes: dict[str, Any] = {_TOPIC: topic, **({_TABLE: ""} if _TABLE in names else {})}
    log.info("by the environment, whatever the code says: dead letters go to topic %s", topic)
    return dataclasses.replace(settings, **changes)
