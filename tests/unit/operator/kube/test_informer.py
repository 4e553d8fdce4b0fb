"""The cache of one resource type: what a list, a watch and a write put into it."""

from __future__ import annotations

import asyncio
import logging
import time
from http import HTTPStatus

import pytest

from sluicegate_operator.kube.client import ApiError, parse_json
from sluicegate_operator.kube.informer import Informer
from sluicegate_operator.kube.resource import PODS, Json, Key


def body(name: str, version: int, value: object, uid: str = "u") -> Json:
    """Return an object whose cached part is `value`."""
    meta = {"namespace": "n", "name": name, "uid": uid, "resourceVersion": str(version)}
    return {"metadata": meta, "value": value}


def new_informer(changes: list[tuple[int | None, int | None]]) -> Informer[int]:
    """Return a cache of numbers that records its changes; its API is never asked."""

    def changed(_key: Key, old: int | None, new: int | None) -> None:
        changes.append((old, new))

    return Informer(None, PODS, lambda one: int(one["value"]), changed)  # type: ignore[arg-type]


def test_an_object_that_cannot_be_converted_is_left_out_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    informer = new_informer([])
    with caplog.at_level(logging.ERROR):
        informer.put(body("bad", 1, "x"))
        informer.put(body("bad", 2, "x"))
    informer.put(body("good", 3, 7))
    assert {key[1]: entry.value for key, entry in informer.entries.items()} == {"good": 7}
    assert len(caplog.records) == 1
    assert "n/bad" in caplog.text


def test_an_object_that_can_no_longer_be_converted_keeps_its_last_value() -> None:
    """Otherwise a driver that is alive would count as gone, and a second one could start."""
    changes: list[tuple[int | None, int | None]] = []
    informer = new_informer(changes)
    informer.put(body("a", 1, 7))
    informer.put(body("a", 2, "x"))
    assert informer.get(("n", "a")) == 7
    assert informer.unreadable == {("n", "a")}
    informer.put(body("a", 3, 8))
    assert (informer.unreadable, changes) == (set(), [(None, 7), (7, 8)])
    informer.put(body("a", 4, "x"))
    informer.remove(("n", "a"), "u")
    assert (informer.unreadable, changes[-1]) == (set(), (8, None))


def test_a_list_is_no_newer_than_it_is_after_the_clock_was_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise every pod that was requested in the next hour would count as absent."""
    clock = {"wall": 3600.0, "monotonic": 100.0}
    monkeypatch.setattr(time, "time", lambda: clock["wall"])
    monkeypatch.setattr(time, "monotonic", lambda: clock["monotonic"])
    informer = new_informer([])
    assert informer.complete_at() is None
    informer.listed_at, informer._listed_monotonic = 3600.0, 100.0
    clock.update(wall=3610.0, monotonic=110.0)
    assert informer.complete_at() == 3600.0
    clock.update(wall=20.0, monotonic=120.0)
    assert informer.complete_at() == 0.0
    clock.update(wall=9020.0)
    assert informer.complete_at() == 3600.0, "older than it is does no harm"


@pytest.mark.parametrize("value", [7, 8])
def test_an_object_of_the_same_name_is_a_deletion_and_a_creation(value: int) -> None:
    """Listeners drop what they keep by UID, such as storage tasks that are running."""
    changes: list[tuple[int | None, int | None]] = []
    informer = new_informer(changes)
    informer.put(body("a", 1, 7))
    informer.put(body("a", 2, value, uid="other"))
    assert changes == [(None, 7), (7, None), (None, value)]
    informer.put(body("a", 3, 9))
    assert informer.get(("n", "a")) == value


def test_an_unreadable_object_does_not_keep_the_value_of_another_of_its_name() -> None:
    informer = new_informer([])
    informer.put(body("a", 1, 7))
    informer.put(body("a", 2, "x", uid="other"))
    assert informer.get(("n", "a")) is None


def test_watches_that_expire_at_once_are_retried_ever_more_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lists of a whole cluster without a pause would overload a server that answers 410 to each watch."""
    pauses: list[float] = []

    class Expiring:
        async def request(self, *_: object, **__: object) -> Json:
            return {"items": [], "metadata": {"resourceVersion": "1"}}

        def watch(self, *_: object) -> object:
            raise ApiError(HTTPStatus.GONE, "Expired", "too old")

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 8:
            raise asyncio.CancelledError

    monkeypatch.setattr("random.random", lambda: 0.5)
    monkeypatch.setattr("asyncio.sleep", sleep)
    informer = new_informer([])
    informer.api = Expiring()  # type: ignore[assignment]
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(informer.run())
    assert pauses == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_json_is_cut_below_the_depth_that_can_be_parsed() -> None:
    """One object with deep nesting must not make the whole list unreadable."""
    deep = b'{"a": ' * 5000 + b"[]" + b"}" * 5000
    answer = parse_json(b'{"items": [{"spec": %s, "text": "}]\\\\\\"]"}, {"x": 1}]}' % deep)
    assert answer["items"][0]["text"] == '}]\\"]'
    assert answer["items"][1] == {"x": 1}
    assert answer["items"][0]["spec"]["a"]["a"] != {}


@pytest.mark.parametrize("text", [b"[" * 5000, b"{", b'{"a": "'])
def test_malformed_json_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)
