"""What a job costs, by what its drivers recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.console.cost import Pods, Prices, cost
from sluicegate.storage.driver_failure import DriverFailure
from sluicegate.storage.driver_start import DriverStart
from tests.unit.console.builders import HOUR_MS, NOW_MS, epoch, job

DRIVER = {"kubernetes.driver.cpu": "500m", "kubernetes.driver.memory": "1536Mi"}
EXECUTORS = {
    "spark.master": "k8s://https://kubernetes.default.svc",
    "spark.executor.instances": "2",
    "spark.executor.cores": "2",
    "spark.executor.memory": "1024m",
    "spark.executor.memoryOverhead": "512m",
}
PRICES = Prices(core_hour=1.0, gib_hour=0.1)
PER_HOUR = 4.5 * 1.0 + 4.5 * 0.1


def test_an_hour_costs_the_requests_of_all_pods() -> None:
    found = cost(replace(job(), starts=(DriverStart(1, DRIVER | EXECUTORS),)), PRICES)
    assert found is not None
    assert found.driver == Pods(1, 0.5, 1.5)
    assert found.executors == Pods(2, 2.0, 1.5)
    assert (found.cores, found.gib) == (4.5, 4.5)
    assert found.per_hour == pytest.approx(PER_HOUR)


@pytest.mark.parametrize(
    ("settings", "pods"),
    [
        ({"spark.executor.instances": "0"}, Pods(0, 2.0, 1.5)),
        ({"spark.master": "local[4]"}, Pods(0, 0.0, 0.0)),
        ({"spark.kubernetes.executor.request.cores": "250m"}, Pods(2, 0.25, 1.5)),
        ({"spark.executor.pyspark.memory": "1g"}, Pods(2, 2.0, 2.5)),
        (
            {"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": str(1 << 29)},
            Pods(2, 2.0, 2.0),
        ),
        ({"spark.memory.offHeap.enabled": "true"}, None),
        ({"spark.dynamicAllocation.enabled": "true"}, None),
        ({"spark.executor.instances": ""}, None),
        ({"spark.executor.memory": "(hidden)"}, None),
    ],
)
def test_executors_are_counted_by_sparks_rule(settings: dict[str, str], pods: Pods | None) -> None:
    start = DriverStart(1, DRIVER | EXECUTORS | settings)
    found = cost(replace(job(), starts=(start,)), PRICES)
    assert found is not None
    assert found.executors == pods
    assert (found.per_hour is None) == (pods is None)


def test_a_driver_outside_of_kubernetes_has_no_cost() -> None:
    found = cost(replace(job(), starts=(DriverStart(1, {"spark.master": "local[2]"}),)), PRICES)
    assert found is not None
    assert (found.driver, found.per_hour, found.counted) == (None, None, 0)


@pytest.mark.parametrize("prices", [Prices(), Prices(currency="EUR")])
def test_without_a_price_there_is_no_cost(prices: Prices) -> None:
    assert cost(replace(job(), starts=(DriverStart(1, DRIVER),)), prices) is None


def test_without_a_recorded_start_there_is_no_cost() -> None:
    assert cost(job(), PRICES) is None


def test_a_driver_counts_until_its_failure_or_its_last_epoch() -> None:
    """The first two left no sign; the third ran an hour until it failed, the last one two hours so far."""
    hours = [NOW_MS + hour * HOUR_MS for hour in range(10)]
    settings = DRIVER | EXECUTORS
    facts = replace(
        job(epoch(1, at_ms=hours[3] + HOUR_MS // 2), epoch(2, at_ms=hours[8])),
        starts=tuple(DriverStart(hours[hour], settings) for hour in (6, 3, 2, 1)),
        failures=(DriverFailure(hours[4], 3600.0, 1),),
    )
    found = cost(facts, PRICES)
    assert found is not None
    assert (found.counted, found.recorded) == (2, 4)
    assert found.hours == pytest.approx(3.0)
    assert found.spent == pytest.approx(3 * PER_HOUR)


def test_a_driver_with_other_requests_counts_by_its_own() -> None:
    start = DriverStart(NOW_MS, DRIVER | EXECUTORS)
    small = DriverStart(NOW_MS - HOUR_MS, DRIVER | EXECUTORS | {"spark.executor.instances": "1"})
    facts = replace(job(epoch(1, at_ms=NOW_MS - 1)), starts=(start, small))
    found = cost(facts, PRICES)
    assert found is not None
    assert found.spent == pytest.approx(2.5 + 0.3, rel=1e-5)
    assert found.per_hour == pytest.approx(PER_HOUR)
