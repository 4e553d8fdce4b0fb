"""Each alert fires at its fault and not before, in Prometheus' own rule engine (promtool).

A series is written as promtool does: `0+60x20` begins at 0 and adds 60 each minute, twenty times; `_` is a
minute without a sample, and `stale` ends the series. Time begins at 0, so a timestamp of `0+60x20` is
always now.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from infra.toolchain import go_programs
from tests.integration.charts.rendering import Charts, only_of_kind
from tests.integration.charts.test_alerts import VALUES, alerts_of

Series = Mapping[str, str]

JOB: Final = 'namespace="shop", job="clicks"'
DRIVER: Final = f'{JOB}, pod="clicks-1-driver"'
OF_JOB: Final = {"namespace": "shop", "job": "clicks"}


@dataclass(frozen=True)
class Fault:
    """What an alert must fire at, and what it must not fire at.

    Args:
        alert: its name.
        minutes: when it fires, and at no minute before.
        faulty: the series of the fault.
        healthy: series that are close to the fault, and none; at no time does the alert fire.
        labels: labels of the alert, apart from its name.
    """

    alert: str
    minutes: int
    faulty: Series
    healthy: Sequence[Series] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


def _sink(seconds: str, epochs: str) -> Series:
    labels = f'{DRIVER}, step="apply", sink="table"'
    return {
        f"sluicegate_epoch_step_seconds_sum{{{labels}}}": seconds,
        f"sluicegate_epoch_step_seconds_count{{{labels}}}": epochs,
    }


def _stalled(phase: str) -> Series:
    return {
        f"sluicegate_job_epoch_age_seconds{{{JOB}}}": "0+60x60",
        f'sluicegate_job_phase{{{JOB}, phase="{phase}"}}': "1x60",
    }


_LEADER: Final = 'sluicegate_leader{namespace="shop", pod="a"}'
_FOLLOWER: Final = 'sluicegate_leader{namespace="shop", pod="b"}'
_RECONCILE_ERRORS: Final = (
    'sluicegate_reconcile_errors_total{kind="StreamingJob", error="ApiError"}'
)
_WATCH_ERRORS: Final = 'sluicegate_watch_errors_total{resource="pods"}'
_RESTARTS: Final = f"sluicegate_job_restarts_total{{{JOB}}}"
_IN_DOUBT: Final = f"sluicegate_epoch_in_doubt_timestamp_seconds{{{DRIVER}}}"
_APPLIED: Final = f"sluicegate_epoch_applied_timestamp_seconds{{{DRIVER}}}"
_PROGRESS: Final = f"sluicegate_query_progress_timestamp_seconds{{{DRIVER}}}"
_LAG: Final = f"sluicegate_source_lag_records{{{DRIVER}}}"
_LETTERS: Final = f'sluicegate_dead_letters_total{{{DRIVER}, kind="late"}}'
_STATE: Final = f'sluicegate_state_rows{{{DRIVER}, operator="stateStoreSave"}}'

FAULTS: Final[Mapping[str, Sequence[Fault]]] = {
    "operator": (
        Fault(
            "SluicegateNoLeader",
            5,
            {_LEADER: "0x60", _FOLLOWER: "0x60"},
            # a lease that changes hands
            [{_LEADER: "1x20 0x70", _FOLLOWER: "0x22 1x70"}],
        ),
        Fault("SluicegateNoLeader", 5, {}, labels={"namespace": "shop"}),
        Fault(
            "SluicegateReconcileErrors",
            31,
            {_RECONCILE_ERRORS: "0+1x60"},
            [{_RECONCILE_ERRORS: "0x20 5x40"}],
            {"kind": "StreamingJob", "error": "ApiError"},
        ),
        Fault(
            "SluicegateWatchErrors",
            13,
            {_WATCH_ERRORS: "0+2x60"},
            [{_WATCH_ERRORS: "0x9 1x9 2x9 3x9 4x20"}],
            {"resource": "pods"},
        ),
        Fault(
            "SluicegateUnreadableObjects",
            10,
            {'sluicegate_unreadable_objects{resource="streamingjobs"}': "1x60"},
            [{'sluicegate_unreadable_objects{resource="streamingjobs"}': "0x60"}],
            {"resource": "streamingjobs"},
        ),
        Fault(
            "SluicegateHeldPods",
            10,
            {'sluicegate_held_pods_without_job{namespace="shop"}': "1x60"},
            # a pod that the operator releases
            [{'sluicegate_held_pods_without_job{namespace="shop"}': "1x5"}],
            {"namespace": "shop"},
        ),
        Fault(
            "SluicegateJobFailed",
            1,
            {f'sluicegate_job_phase{{{JOB}, phase="Failed"}}': "1x60"},
            [{f'sluicegate_job_phase{{{JOB}, phase="Suspended"}}': "1x60"}],
            OF_JOB,
        ),
        Fault(
            "SluicegateJobRestarts",
            5,
            {_RESTARTS: "0+1x60"},
            # as many within an hour as the threshold
            [{_RESTARTS: "5x10 6x10 7x10 8x90"}],
            OF_JOB,
        ),
        Fault(
            "SluicegateJobStalled",
            16,
            _stalled("Running"),
            [
                _stalled("Suspended"),
                _stalled("Finished"),
                # resumed after a day: its age counts from then, and its first epoch takes 10 minutes
                {
                    f"sluicegate_job_epoch_age_seconds{{{JOB}}}": "86400x10 0+60x10 0x40",
                    f'sluicegate_job_phase{{{JOB}, phase="Suspended"}}': "1x10 _x50",
                    f'sluicegate_job_phase{{{JOB}, phase="Starting"}}': "_x11 1x7 _x42",
                    f'sluicegate_job_phase{{{JOB}, phase="Running"}}': "_x19 1x41",
                },
                # idle: its age is a sawtooth
                {
                    f"sluicegate_job_epoch_age_seconds{{{JOB}}}": "30x60",
                    f'sluicegate_job_phase{{{JOB}, phase="Running"}}': "1x60",
                },
            ],
            OF_JOB,
        ),
        Fault(
            "SluicegateJobNotRunning",
            30,
            {
                f'sluicegate_job_phase{{{JOB}, phase="Pending"}}': "1x20",
                f'sluicegate_job_phase{{{JOB}, phase="Starting"}}': "_x20 1x40",
            },
            [
                {f'sluicegate_job_phase{{{JOB}, phase="Running"}}': "1x60"},
                {f'sluicegate_job_phase{{{JOB}, phase="Upgrading"}}': "1x20"},
            ],
            OF_JOB,
        ),
    ),
    "job": (
        Fault(
            "SluicegateEpochInDoubt",
            2,
            {_IN_DOUBT: "0x60"},
            [{_IN_DOUBT: "0+60x90"}],
            OF_JOB,
        ),
        Fault(
            # no other driver lives long enough to be scraped
            "SluicegateEpochInDoubt",
            2,
            {_IN_DOUBT: "0 stale", _RESTARTS: "0+1x60"},
            [
                {_IN_DOUBT: "0 stale", _APPLIED: "_ 30x90", _RESTARTS: "0+1x90"},
                # the job was stopped, or has read everything
                {_IN_DOUBT: "0 stale", _RESTARTS: "3x90"},
            ],
            OF_JOB,
        ),
        Fault(
            # the driver ends; the next one knows the time of the decision
            "SluicegateEpochInDoubt",
            2,
            {
                _IN_DOUBT: "0x1 stale",
                _IN_DOUBT.replace("clicks-1", "clicks-2"): "_x2 0x40",
            },
            labels=OF_JOB,
        ),
        Fault(
            "SluicegateNoProgress",
            7,
            {_PROGRESS: "0x60"},
            [{_PROGRESS: "0+60x90"}],
            OF_JOB,
        ),
        Fault(
            "SluicegateLagGrows",
            45,
            {_LAG: "200000+1000x90"},
            [{_LAG: "200000x90"}, {_LAG: "0+100x90"}, {_LAG: "900000-1000x90"}],
            OF_JOB,
        ),
        Fault(
            "SluicegateDeadLetters",
            10,
            {_LETTERS: "_x10 3x9"},
            labels={**OF_JOB, "kind": "late"},
        ),
        Fault(
            "SluicegateDeadLetters",
            21,
            {_LETTERS: "0x20 1x10"},
            labels={**OF_JOB, "kind": "late"},
        ),
        Fault(
            "SluicegateSinkSlow",
            16,
            _sink("0+60x60", "0+1x60"),
            [_sink("0+60x60", "0+60x60"), _sink("5x60", "1x60")],
            {**OF_JOB, "sink": "table"},
        ),
        Fault("SluicegateStateLarge", 15, {_STATE: "20000000x60"}, [{_STATE: "500x60"}], OF_JOB),
        Fault(
            "SluicegateMetricsMissing",
            10,
            {'up{namespace="shop", pod="clicks-12-driver"}': "0x60"},
            [
                {'up{namespace="shop", pod="clicks-12-driver"}': "1x60"},
                {'up{namespace="shop", pod="clicks-eu-1-driver"}': "0x60"},
            ],
            {"namespace": "shop", "pod": "clicks-12-driver"},
        ),
    ),
}
MINUTES: Final = 90

CASES: Final = [(chart, fault) for chart, faults in FAULTS.items() for fault in faults]


@pytest.fixture(scope="module")
def rules(charts: Charts, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Write the rules of each chart to a file that Prometheus reads; skip without promtool."""
    if reason := go_programs.PROMTOOL.missing_reason():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("rules")
    for chart, values in VALUES.items():
        documents = charts.render(chart, values, release="clicks", namespace="shop")
        spec = only_of_kind(documents, "PrometheusRule")["spec"]
        (folder / f"{chart}.yaml").write_text(yaml.safe_dump(spec))
    return {chart: folder / f"{chart}.yaml" for chart in VALUES}


def promtool(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run promtool; return what it printed."""
    command = [str(go_programs.PROMTOOL.binary), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("chart", VALUES)
def test_prometheus_accepts_the_rules_and_their_templates(
    rules: Mapping[str, Path], chart: str
) -> None:
    done = promtool("check", "rules", "--lint-fatal", rules[chart])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("chart", "fault"), CASES, ids=[fault.alert for _, fault in CASES])
def test_an_alert_fires_at_its_fault_and_not_before(
    rules: Mapping[str, Path], tmp_path: Path, chart: str, fault: Fault
) -> None:
    fires = [_fires(fault.alert, fault.minutes, fault.labels)]
    quiet = [_silence(fault.alert, minute) for minute in range(fault.minutes)]
    tests = [_test(fault.faulty, [*quiet, *fires])]
    always_quiet = [_silence(fault.alert, minute) for minute in range(0, MINUTES, 3)]
    tests += [_test(series, always_quiet) for series in fault.healthy]
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(rules[chart])], "tests": tests}))
    done = promtool("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_dead_letters_of_the_past_do_not_fire_after_a_scrape_that_failed(
    rules: Mapping[str, Path], tmp_path: Path
) -> None:
    """Ten minutes later the series of that time is missing, and each kind looked new."""
    past = {_LETTERS: "5x20 stale 5x60"}
    quiet = [_silence("SluicegateDeadLetters", minute) for minute in range(12, 60)]
    file = tmp_path / "test.yaml"
    tests = [_test(past, quiet)]
    file.write_text(yaml.safe_dump({"rule_files": [str(rules["job"])], "tests": tests}))
    done = promtool("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("chart", VALUES)
def test_each_alert_has_a_fault(charts: Charts, chart: str) -> None:
    assert {fault.alert for fault in FAULTS[chart]} == set(alerts_of(charts, chart))


def _test(series: Series, expressions: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": expressions,
    }


def _firing(alert: str) -> str:
    own = "alertname, alertstate, severity"
    return f'sum without ({own}) (ALERTS{{alertname="{alert}", alertstate="firing"}})'


def _silence(alert: str, minute: int) -> dict[str, Any]:
    return {"expr": _firing(alert), "eval_time": f"{minute}m", "exp_samples": []}


def _fires(alert: str, minute: int, labels: Mapping[str, str]) -> dict[str, Any]:
    text = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    sample = {"labels": f"{{{text}}}", "value": 1}
    return {"expr": _firing(alert), "eval_time": f"{minute}m", "exp_samples": [sample]}
