"""Invalid settings of a lookup are refused."""

from __future__ import annotations

from typing import Any

import pytest

from sluicegate.errors import SettingsInvalid
from sluicegate.lookups.redis import RedisHash
from sluicegate.lookups.settings import Cache, LookupSettings


@pytest.mark.parametrize(
    "invalid",
    [
        {"mode": "sorted"},
        {"on_timeout": "ignore"},
        {"capacity": 0},
        {"timeout_s": 0},
        {"retries": -1},
    ],
)
def test_an_invalid_setting_is_named(invalid: dict[str, Any]) -> None:
    (name,) = invalid
    with pytest.raises(SettingsInvalid, match=f"into city: {name}="):
        LookupSettings("city", **invalid)


@pytest.mark.parametrize("invalid", [{"rows": 0}, {"ttl_s": 0}])
def test_a_cache_that_caches_nothing_is_refused(invalid: dict[str, Any]) -> None:
    with pytest.raises(SettingsInvalid, match="caches nothing"):
        Cache(**invalid)


def test_a_hash_without_a_server_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLUICEGATE_REDIS", raising=False)
    with pytest.raises(SettingsInvalid, match="RedisHash") as raised:
        RedisHash("cities")
    assert "SLUICEGATE_REDIS" in raised.value.do


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(RedisHash("cities", url="redis://me:secret@localhost"))
