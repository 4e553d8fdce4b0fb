"""What a lookup refuses to be told."""

from __future__ import annotations

from typing import Any

import pytest

from sluicegate.lookups.redis_store import RedisHash
from sluicegate.lookups.settings import Cache, LookupSettings
from sluicegate.protocol.errors import SettingsInvalid


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "sorted"},
        {"on_timeout": "ignore"},
        {"capacity": 0},
        {"timeout_s": 0},
        {"retries": -1},
    ],
)
def test_a_setting_that_cannot_work_is_named(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(SettingsInvalid, match=f"into city: {name}="):
        LookupSettings("city", **wrong)


@pytest.mark.parametrize("wrong", [{"rows": 0}, {"ttl_s": 0}])
def test_a_cache_that_remembers_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsInvalid, match="remembers nothing"):
        Cache(**wrong)


def test_a_hash_without_a_server_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLUICEGATE_REDIS", raising=False)
    with pytest.raises(SettingsInvalid, match="RedisHash") as raised:
        RedisHash("cities")
    assert "SLUICEGATE_REDIS" in raised.value.do


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(RedisHash("cities", url="redis://me:secret@localhost"))
