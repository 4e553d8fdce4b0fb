"""Parts of correct histories for the tests of the checker, and what they do to them. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

from tests.robustness.validate.checker.history import History, Record

Damage = Callable[[History], History]


def records(*values: bytes | None) -> tuple[Record, ...]:
    return tuple(Record(0, offset, None, value) for offset, value in enumerate(values))


def letter(reason: str, history: History, offset: int) -> bytes:
    value = history.source[offset].value
    fields: dict[str, Any] = {"reason": reason, "source": {"topic": "s", "partition": 0}}
    fields["source"]["offset"] = offset
    if value is not None:
        fields["payload_sha256"] = sha256(value).hexdigest()
    return json.dumps(fields).encode()


def refused(*parts: dict[str, Any], cut: bool = False) -> bytes:
    payload = json.dumps(parts, ensure_ascii=False)
    digest = sha256(payload.encode()).hexdigest()
    fields = {"payload": payload[:50] if cut else payload, "payload_sha256": digest}
    return json.dumps({"reason": "refused by mysql.t: so", **fields}).encode()


def changed(h: History, field: str, values: Any) -> History:  # noqa: ANN401 - of any field
    values_by_field: dict[str, Any] = {field: tuple(values)}
    return replace(h, **values_by_field)


def without(field: str, index: int) -> Damage:
    def damage(h: History) -> History:
        values = list(getattr(h, field))
        del values[index]
        return changed(h, field, values)

    return damage


def again(field: str, index: int) -> Damage:
    return lambda h: changed(h, field, [*getattr(h, field), getattr(h, field)[index]])


def instead(field: str, index: int, value: object) -> Damage:
    def damage(h: History) -> History:
        values = list(getattr(h, field))
        values[index] = value
        return changed(h, field, values)

    return damage


def also(field: str, *values: object) -> Damage:
    return lambda h: changed(h, field, [*getattr(h, field), *values])
