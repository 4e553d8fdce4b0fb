"""Samples of a job's dead letters, read from their topic when somebody asks for them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from threading import Lock

from cachetools import TTLCache

from sluicegate.console.model import Epoch, JobFacts
from sluicegate.console.operations import dead_letter_topic
from sluicegate.console.redaction import without_secrets
from sluicegate.dead_letters.summary import Reason, by_reason
from sluicegate.dead_letters.topic import read_dead_letters
from sluicegate.errors import SluicegateError
from sluicegate.sinks.kafka.connection import Connection
from sluicegate.storage.driver_start import DEAD_LETTERS, NO_SINK

LETTERS = 5_000
"""How many dead letters are read at most."""
REASONS = 20
"""How many reasons are shown at most."""

_EXAMPLES = 2
_BEFORE_MS = 60_000
"""Dead letters are read from this long before the first epoch: clocks differ."""
_MAX_AGE_S = 30.0


@dataclass(frozen=True)
class Place:
    """Where a job's dead letters are: a topic, or in a sentence why no samples can be shown."""

    topic: str = ""
    why_not: str = ""


@dataclass(frozen=True)
class Sampled:
    """Dead letters by reason, since an epoch; `complete`: there are no more of them.

    At most LETTERS are read, and at most REASONS are shown.
    """

    epoch: int
    reasons: tuple[Reason, ...]
    complete: bool


class Samples:
    """Reads dead letters, those of a job at most once in half a minute, even if that fails.

    Args:
        kafka: bootstrap servers; empty: the console has no access to Kafka.
    """

    def __init__(self, kafka: str = "") -> None:
        self._kafka = kafka
        self._lock = Lock()
        self._read: TTLCache[tuple[str, str], Sampled | SluicegateError] = TTLCache(16, _MAX_AGE_S)

    def place(self, job: JobFacts) -> Place:
        """Return where the dead letters of a job are."""
        sink = job.starts[0].settings.get(DEAD_LETTERS, "") if job.starts else ""
        if sink == NO_SINK:
            return Place(why_not="The job has no sink for dead letters.")
        binding = job.newest.sinks.get(sink) if job.newest else None
        if binding is None:
            return Place(why_not="No samples: no driver has recorded where they are.")
        topic = dead_letter_topic(job)
        if not topic:
            return Place(why_not=f"No samples: they are in {binding.target}, not in a topic.")
        if not self._kafka:
            return Place(
                why_not="No samples: this console has no access to Kafka. Give it --kafka, or run "
                f"`sluicegate dead-letters list {topic} --examples 2`."
            )
        return Place(topic)

    def read(self, job: JobFacts, topic: str) -> Sampled:
        """Return the dead letters since the first of the job's epochs.

        Raises:
            TargetMissing: the topic does not exist.
            SinkUnavailable: the brokers do not answer.
        """
        with self._lock:
            found = self._read.get((job.address, topic))
            if found is None:
                try:
                    found = self._sample(job.epochs[0], topic)
                except SluicegateError as error:  # every viewer would wait for the brokers again
                    found = error
                self._read[job.address, topic] = found
        if isinstance(found, SluicegateError):
            raise found
        return found

    def _sample(self, first: Epoch, topic: str) -> Sampled:
        since_ms = max(0, first.decided_at_ms - _BEFORE_MS)
        letters = read_dead_letters(Connection.of(self._kafka), topic, since_ms)
        reasons = by_reason(islice(letters, LETTERS), _EXAMPLES, redact=without_secrets)
        complete = len(reasons) <= REASONS and next(letters, None) is None
        return Sampled(first.number, tuple(reasons[:REASONS]), complete)
