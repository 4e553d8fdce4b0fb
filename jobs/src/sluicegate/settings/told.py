"""What the resource of a job tells the code that runs in its driver's pod, by the environment.

The operator writes these variables (operators/DESIGN.md); whoever runs a driver by hand may set them
too. What is told wins over what the code gives: a job is told where it is by its resource. Not here:
the variables of the pod itself (`tracing.progress`) and of the servers. Called by `sluicegate.pod`,
the CLI and `sluicegate.spark`.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.settings.epoch import EpochSettings
from sluicegate.settings.schema import NOTHING_STARTED, from_mapping

log = logging.getLogger("sluicegate.told")

CHECKPOINT_VARIABLE = "SLUICEGATE_CHECKPOINT"
EPOCHS_VARIABLE = "SLUICEGATE_EPOCHS"
"""A JSON object of `EpochSettings`, by their names in Python."""
PURPOSE_VARIABLE = "SLUICEGATE_PURPOSE"
RESTORE_VARIABLE = "SLUICEGATE_RESTORE_FROM"
MASTER_VARIABLE = "SLUICEGATE_MASTER"
CONF_VARIABLE = "SLUICEGATE_SPARK_CONF"
"""A JSON object of Spark's settings."""
LETTERS_VARIABLE = "SLUICEGATE_DEAD_LETTER_TOPIC"
JOB_VARIABLE = "SLUICEGATE_JOB"
ATTEMPT_VARIABLE = "SLUICEGATE_ATTEMPT"
NEWEST_VARIABLE = "SLUICEGATE_NEWEST_CHECKPOINT"

RUN, FINISH = "run", "finish"

S = TypeVar("S", bound=EpochSettings)


@dataclass(frozen=True)
class Told:
    """What is told; an empty value says nothing.

    Args:
        checkpoint: the address of the checkpoint.
        epochs: settings of `EpochSettings`, by name.
        purpose: 'run', or 'finish': apply what is decided in every sink and start no query.
        restore_from: the address of a savepoint, for a checkpoint that has no lineage yet.
        master: Spark's master URL.
        spark_conf: Spark's settings.
        dead_letter_topic: where a packaged job sends its dead letters.
        job: namespace/name of the resource.
        attempt: which of its drivers this is.
        newest_checkpoint: the highest number that the resource has given a checkpoint; 0: unknown.
    """

    checkpoint: str = ""
    epochs: Mapping[str, object] = field(default_factory=dict)
    purpose: str = RUN
    restore_from: str = ""
    master: str = ""
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    dead_letter_topic: str = ""
    job: str = ""
    attempt: str = ""
    newest_checkpoint: int = 0

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None) -> Told:
        """Return what an environment tells; default: this process's.

        Raises:
            SettingsInvalid: a variable cannot be read, or holds what cannot work.
        """
        given = os.environ if environment is None else environment
        purpose = given.get(PURPOSE_VARIABLE) or RUN
        if purpose not in (RUN, FINISH):
            raise _invalid(f"{PURPOSE_VARIABLE} is {purpose!r}", f"use {RUN} or {FINISH}")
        return cls(
            checkpoint=given.get(CHECKPOINT_VARIABLE, ""),
            epochs=_epochs(_object(given, EPOCHS_VARIABLE)),
            purpose=purpose,
            restore_from=given.get(RESTORE_VARIABLE, ""),
            master=given.get(MASTER_VARIABLE, ""),
            spark_conf={
                key: _text(key, value) for key, value in _object(given, CONF_VARIABLE).items()
            },
            dead_letter_topic=given.get(LETTERS_VARIABLE, ""),
            job=given.get(JOB_VARIABLE, ""),
            attempt=given.get(ATTEMPT_VARIABLE, ""),
            newest_checkpoint=_number(given, NEWEST_VARIABLE),
        )

    @property
    def finishes(self) -> bool:
        """Whether no query is to be started."""
        return self.purpose == FINISH

    def over(self, checkpoint: str, settings: S) -> tuple[str, S]:
        """Return the checkpoint and the settings as they are told, else as they are given.

        Says in one line of the log what it has changed.

        Raises:
            SettingsInvalid: the settings cannot work together.
        """
        place = self.checkpoint or checkpoint
        changed: dict[str, Any] = {
            name: value for name, value in self.epochs.items() if getattr(settings, name) != value
        }
        said = {**({"checkpoint": place} if place != checkpoint else {}), **changed}
        if said:
            log.info(
                "by the environment, whatever the code says: %s",
                ", ".join(f"{name}={value}" for name, value in said.items()),
            )
        return place, dataclasses.replace(settings, **changed) if changed else settings


def _epochs(given: Mapping[str, object]) -> dict[str, object]:
    checked = from_mapping(EpochSettings, given, where=EPOCHS_VARIABLE)
    names = [name.replace("-", "_") for name in given]
    return {name: getattr(checked, name) for name in names}


def _object(given: Mapping[str, str], variable: str) -> Mapping[str, object]:
    """Return the JSON object of a variable, an empty one where it is not set."""
    text = given.get(variable) or "{}"
    try:
        found = json.loads(text)
    except ValueError as error:
        raise _invalid(f"{variable} is no JSON: {error}", "give a JSON object") from error
    if not isinstance(found, dict):
        raise _invalid(f"{variable} holds a {type(found).__name__}", "give a JSON object")
    return found


def _number(given: Mapping[str, str], variable: str) -> int:
    text = given.get(variable) or "0"
    if not text.isdecimal():
        raise _invalid(f"{variable} is {text!r}", "give a whole number")
    return int(text)


def _text(key: str, value: object) -> str:
    """Return a setting of Spark as Spark writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise _invalid(f"{CONF_VARIABLE}: {key} is {value!r}", "give text, a number, or true or false")


def _invalid(what: str, do: str) -> SettingsInvalid:
    return SettingsInvalid(what, data=NOTHING_STARTED, do=do)
