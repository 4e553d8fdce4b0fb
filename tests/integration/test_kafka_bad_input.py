"""User errors about Kafka: the error names the cause, the state of the data and the remedy."""

from __future__ import annotations

import time
import uuid

import pyarrow as pa
import pytest

from infra.local_services import Services
from infra.local_services.process import free_ports
from sluicegate.errors import (
    AccessDenied,
    SchemaMismatch,
    SettingsInvalid,
    SinkUnavailable,
    TargetMissing,
    TransactionTimeoutInvalid,
)
from sluicegate.sinks.kafka import KafkaSink
from sluicegate.sinks.kafka.bound_sink import BoundKafka
from tests.integration.error_messages import assert_message

ROWS = pa.schema([("ip", pa.string()), ("hits", pa.int64())])


def bind(sink: KafkaSink, apply_timeout_s: float = 20) -> BoundKafka:
    return sink.bind(ROWS, lineage="lineage", apply_timeout_s=apply_timeout_s)


def new_topic(services: Services, config: dict[str, str] | None = None) -> str:
    name = f"bad-{uuid.uuid4().hex}"
    services.kafka.create_topic(name, 3, config)
    return name


def test_broker_down_names_the_address_within_seconds() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    start = time.monotonic()
    with pytest.raises(SinkUnavailable) as error_info:
        bind(KafkaSink("clicks", bootstrap=address))
    assert time.monotonic() - start < 15
    assert_message(error_info.value, address, "refused", "SLUICEGATE_KAFKA")


@pytest.mark.integration
def test_wrong_authentication_names_the_address_and_the_settings(services: Services) -> None:
    config = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "not-to-be-shown",
    }
    with pytest.raises(AccessDenied) as error_info:
        bind(KafkaSink("clicks", bootstrap=services.kafka.bootstrap, config=config))
    assert_message(error_info.value, services.kafka.bootstrap, "SASL", "config=")
    assert "not-to-be-shown" not in str(error_info.value)


@pytest.mark.integration
def test_missing_topic_names_it_and_the_command_and_is_not_created(services: Services) -> None:
    name = f"missing-{uuid.uuid4().hex}"
    with pytest.raises(TargetMissing) as error_info:
        bind(KafkaSink(name, bootstrap=services.kafka.bootstrap))
    assert_message(
        error_info.value,
        f"topic {name} does not exist",
        f"--create --topic {name}",
        "creates no topics",
    )
    assert name not in services.kafka.topics()


@pytest.mark.integration
def test_an_apply_timeout_above_the_longest_transaction_names_both_values(
    services: Services,
) -> None:
    sink = KafkaSink(new_topic(services), bootstrap=services.kafka.bootstrap)
    with pytest.raises(TransactionTimeoutInvalid) as error_info:
        bind(sink, apply_timeout_s=100_000)
    assert_message(
        error_info.value,
        "apply_timeout_s=100000",
        "transaction.max.timeout.ms=900000",
        "to 900 at most",
    )


@pytest.mark.integration
def test_message_over_the_limit_names_size_topic_and_limit(services: Services) -> None:
    name = new_topic(services, {"max.message.bytes": "1000"})
    bound = bind(KafkaSink(name, key="ip", bootstrap=services.kafka.bootstrap))
    staged = pa.record_batch({"key": [b"k"], "value": [b"x" * 1000]})
    reasons = bound.refusals(staged)
    assert reasons is not None
    for text in ("1098 bytes", name, "1000", "max.message.bytes"):
        assert text in str(reasons[0])


@pytest.mark.integration
def test_record_without_a_key_is_refused_by_a_compacted_topic(services: Services) -> None:
    name = new_topic(services, {"cleanup.policy": "compact"})
    bound = bind(KafkaSink(name, bootstrap=services.kafka.bootstrap))
    staged = pa.record_batch({"key": pa.array([None, b"k"], pa.binary()), "value": [b"v", b"v"]})
    reasons = bound.refusals(staged)
    assert reasons is not None
    assert reasons.to_pylist() == [f"the record has no key and topic {name} is compacted", None]


@pytest.mark.integration
def test_partition_that_does_not_exist_is_refused(services: Services) -> None:
    name = new_topic(services)
    bound = bind(KafkaSink(name, partition="hits", bootstrap=services.kafka.bootstrap))
    numbers = pa.array([0, 2, 3, -1, None], pa.int32())
    staged = pa.record_batch({
        "key": pa.nulls(5, pa.binary()), "value": [b"v"] * 5, "partition": numbers,
    })  # fmt: skip
    reasons = bound.refusals(staged)
    assert reasons is not None
    assert [reason is None for reason in reasons.to_pylist()] == [True, True, False, False, True]
    assert f"partition 3 and topic {name} has 3, from 0" in str(reasons[2])


def test_an_unknown_column_error_lists_the_columns() -> None:
    with pytest.raises(SchemaMismatch) as error_info:
        bind(KafkaSink("clicks", key="adress", bootstrap="127.0.0.1:1"))
    assert_message(error_info.value, "clicks", "key='adress'", "ip, hits")


def test_headers_of_a_wrong_type_name_the_type() -> None:
    with pytest.raises(SchemaMismatch) as error_info:
        bind(KafkaSink("clicks", headers="ip", bootstrap="127.0.0.1:1"))
    assert_message(error_info.value, "headers='ip'", "string", "array of struct")


def test_missing_servers_name_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLUICEGATE_KAFKA", raising=False)
    with pytest.raises(SettingsInvalid) as error_info:
        bind(KafkaSink("clicks"))
    assert_message(error_info.value, "clicks", "SLUICEGATE_KAFKA")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"topic": ""}, "topic is empty"),
        ({"parts": 0}, "parts=0"),
        ({"compression": "rar"}, "compression='rar'"),
        ({"config": {"acks": "1"}}, "acks"),
        ({"config": {"transactional.id": "mine"}}, "transactional.id"),
    ],
)
def test_invalid_arguments_are_named(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(SettingsInvalid) as error_info:
        KafkaSink(**{"topic": "clicks", **arguments})  # type: ignore[arg-type]
    assert_message(error_info.value, text)
