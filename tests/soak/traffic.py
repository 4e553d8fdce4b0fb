"""Sends records to a topic at a steady rate, through a process in the client pod."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator

from tests.e2e.platform import CLIENT_POD, Platform
from tests.robustness.traffic.steady_traffic import due

_END_S = 300.0

_SEND = """
import os, sys
from confluent_kafka import Producer
from sluicegate.sinks.kafka.connection import client_settings
from sluicegate.sinks.kafka.producer import ClientLog
topic, unconfirmed, confirmed, refused = sys.argv[1], {}, 0, ""
os.dup(2)  # kubectl exec ends stdin when nobody has stderr any more
os.dup2(os.open(f"/tmp/{topic}.log", os.O_CREAT | os.O_WRONLY), 2)  # the client's log
producer = None
def start():
    global producer, log
    former, log = producer, ClientLog()
    settings = {**client_settings(), "acks": "all", "message.timeout.ms": 900_000}
    producer = Producer(settings, logger=log)
    if former:  # its unconfirmed records refer to it: it would stay with its connections
        former.purge()
        former.flush(1)
    for number in unconfirmed:
        send(number)
def send(number):
    def delivered(error, _message, sender=producer):
        global confirmed, refused
        if sender is producer:
            confirmed += error is None and unconfirmed.pop(number, None) is not None
            refused = str(error or refused)
    partition = number % partitions
    producer.produce(topic, unconfirmed[number], partition=partition, on_delivery=delivered)
def serve(call, *arguments):
    call(*arguments)
    if log.forgot_leader:  # this producer will never send again
        start()
start()
partitions = len(producer.list_topics(topic, timeout=60).topics[topic].partitions)
for number, line in enumerate(sys.stdin.buffer):
    unconfirmed[number] = line.rstrip(b"\\n")
    send(number)
    serve(producer.poll, 0)
    if refused:
        break
for _ in range(240):
    if unconfirmed and not refused:
        serve(producer.flush, 1)
print(f"refused: {refused}; not sent: {len(unconfirmed)}" if refused or unconfirmed else confirmed)
sys.exit(1 if refused or unconfirmed else 0)
"""


class TrafficFailed(Exception):
    """Records are no longer sent, so that a job without new rows proves nothing."""


class Traffic:
    """A thread that sends records. What could not be sent while Kafka was down is sent afterwards.

    A record may be sent twice: a producer that has forgotten a leader is replaced (`ClientLog`).

    Args:
        platform: whose client pod sends.
        topic: the source of a job.
        records: without line feeds.
        rate: records a second.
    """

    def __init__(
        self, platform: Platform, topic: str, records: Iterator[bytes], rate: float
    ) -> None:
        self._topic, self._records, self._rate = topic, records, rate
        send = ("exec", "-i", CLIENT_POD, "--", "python", "-c", _SEND, topic)
        self._process = subprocess.Popen(
            platform.cluster.command(*send),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send, name=f"traffic-{topic}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise TrafficFailed if nothing is sent any more."""
        if not self._thread.is_alive() or self._process.poll() is not None:
            raise TrafficFailed(f"the traffic of {self._topic} ended: {self._output()}")

    def stop(self) -> int:
        """Stop, wait until Kafka has confirmed everything, and return how many records that are."""
        self.check()
        self._ended.set()
        self._thread.join()
        output = self._output()
        if self._process.returncode != 0:
            raise TrafficFailed(f"the traffic of {self._topic} failed: {output}")
        return int(output.split()[-1])

    def _output(self) -> str:
        try:
            output, _ = self._process.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            raise TrafficFailed(f"the traffic of {self._topic} does not end") from error
        return output.decode(errors="replace")

    def _send(self) -> None:
        assert self._process.stdin is not None
        for numbers in due(self._rate, self._ended):
            lines = [next(self._records) + b"\n" for _ in numbers]
            self._process.stdin.write(b"".join(lines))
            self._process.stdin.flush()
