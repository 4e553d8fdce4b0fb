"""Asks Kafka's brokers about topics, and says what it means when they do not answer.

Called by the packaged jobs before they start, and by what makes their topics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from sluicegate.sinks.kafka import faults
from sluicegate.sinks.kafka.access import client_settings, servers_of

ANSWER_S = 10.0

Answer = TypeVar("Answer")


def asked(servers: str, doing: str, ask: Callable[[AdminClient], Answer]) -> Answer:
    """Return what brokers answer.

    Args:
        servers: brokers; empty: the environment's.
        doing: what is wanted, such as 'creating topics'.
        ask: asks.

    Raises:
        AccessDenied: they refuse us. To the one who asks a wrong password looks like silence.
        TargetMissing: the topic is not there.
        SinkUnavailable: there is no answer.
    """
    heard: list[KafkaError] = []
    settings: dict[str, Any] = {**client_settings(servers), "error_cb": heard.append}
    admin = AdminClient(settings, logger=logging.getLogger(__name__))
    try:
        return ask(admin)
    except (KafkaException, TimeoutError) as raised:
        admin.poll(0)
        silent = KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001 - librdkafka's own errors have no other name
        error = faults.error_of(raised) if isinstance(raised, KafkaException) else silent
        reason = next((one for one in heard if faults.is_denial(one.name())), error)
        raise faults.before_start(reason, servers_of(servers), doing) from raised
