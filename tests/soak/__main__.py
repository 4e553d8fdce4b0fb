"""Runs the soak: `python -m tests.soak --minutes 120`, on the cluster of `make kind-up`.

It installs the platform in a clean namespace, feeds ip_count and two_sinks at a steady rate, kills a random
pod every minute, and samples what the platform uses. At the end both jobs read the rest of their input
and `sluicegate verify` judges every row. The exit code is 1 if a job is not exact or a series has grown.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from infra.toolchain import go_programs
from infra.workspace import CHECKOUT, work_folder
from tests.bench.about import commit
from tests.bench.page_parts import write_page
from tests.e2e.cluster import Cluster, CommandFailed
from tests.e2e.conftest import KUBECONFIG, install
from tests.e2e.manifests import ip_count, two_sinks
from tests.e2e.platform import NAMESPACE, Platform
from tests.robustness.traffic.steady_traffic import access_lines, indicators
from tests.soak import report
from tests.soak.samples import JOBS, SERVERS, Sampler, executors, pod_of
from tests.soak.traffic import Traffic

PAGE = CHECKOUT / "docs" / "reference" / "soak.md"

_MINUTE_S = 60.0
_IDS_EVERY = 5
"""Samples from one count of the transactional ids to the next."""

_DRAIN_S = 900.0
"""In which both jobs must read the rest of their input after the last kill."""

_VICTIMS = (
    "driver of ip-count",
    "driver of two-sinks",
    "executor of two-sinks",
    *SERVERS,
    "operator",
)


_SPARED = ("driver of ip-count", "operator")
"""What lives on after the first quarter: a process that is killed every few minutes shows no leak."""


def main() -> int:
    """Run a soak and write its report."""
    options = _options()
    tools = go_programs.link_tool("kubectl"), go_programs.link_tool("helm")
    print("Installing the platform ...", flush=True)
    platform = install(Cluster(KUBECONFIG, *tools, NAMESPACE))
    for job in ("ip_count", "two_sinks"):
        platform.command("targets", job)
    staging = two_sinks(platform)
    staging["spec"]["epochs"]["inlineBytes"] = 0  # so that its staged rows are objects
    platform.cluster.apply(ip_count(platform), staging)
    folder = work_folder() / "soak"
    folder.mkdir(parents=True, exist_ok=True)
    run = _run(platform, options, folder / f"soak-{options.seed}.json")
    text, plots = report.page(run)
    write_page(options.page, text, plots)
    print(text)
    return 1 if report.grown(run) or not all(run["verified"].values()) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0, help="default 120")
    parser.add_argument("--rate", type=float, default=40.0, help="records a second; default 40")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of kills, input")
    parser.add_argument("--page", type=Path, default=PAGE, help="the report")
    return parser.parse_args()


def _run(platform: Platform, options: argparse.Namespace, file: Path) -> dict[str, Any]:
    chance = random.Random(options.seed)
    inputs = {
        "ip-count": ("ip_count_source", access_lines(options.seed)),
        "two-sinks": ("two_sinks_source", indicators(options.seed)),
    }
    traffic = {
        job: Traffic(platform, topic, records, options.rate)
        for job, (topic, records) in inputs.items()
    }
    for job in JOBS:
        platform.job_when(job, lambda s: "lastEpoch" in s.get("checkpoint", {}), "an epoch")
    applied_s: dict[str, dict[int, float]] = {}
    run: dict[str, Any] = {
        "seed": options.seed,
        "minutes": options.minutes,
        "rate": options.rate,
        "commit": commit(),
        "began_s": time.time(),
        "samples": [],
        "kills": [],
        "applied_s": applied_s,
    }
    sampler, victims = Sampler(platform, applied_s), _dealt(chance)
    began = time.monotonic()
    for number in range(int(options.minutes)):
        _sleep_until(began + number * _MINUTE_S)
        for of_job in traffic.values():
            of_job.check()
        _sample(sampler, run, began, ids=number % _IDS_EVERY == 0)
        file.write_text(json.dumps(run), encoding="utf-8")
        _sleep_until(began + (number + chance.uniform(0.4, 0.9)) * _MINUTE_S)
        if number == int(options.minutes) // 4:
            victims = _dealt(chance, [one for one in _VICTIMS if one not in _SPARED])
        _kill(platform, chance, next(victims), run, began)
    run["records"] = {job: of_job.stop() for job, of_job in traffic.items()}
    run["verified"] = {job: _is_exact(platform, job, run["records"][job]) for job in JOBS}
    _sample(sampler, run, began, ids=True)
    run["restarts"] = {job: platform.job_when(job, bool, "").get("restarts", 0) for job in JOBS}
    file.write_text(json.dumps(run), encoding="utf-8")
    print(f"All samples are in {file}", flush=True)
    return run


def _dealt(chance: random.Random, victims: Sequence[str] = _VICTIMS) -> Iterator[str]:
    """Yield victims without end; each comes once before one comes twice."""
    while True:
        yield from chance.sample(victims, len(victims))


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def _sample(sampler: Sampler, run: dict[str, Any], began: float, *, ids: bool) -> None:
    minute = (time.monotonic() - began) / _MINUTE_S
    values = sampler.sample() | (sampler.transactional_ids() if ids else {})
    run["samples"].append({"minute": round(minute, 2), "values": values})
    newest = {job: max(epochs, default=None) for job, epochs in run["applied_s"].items()}
    print(f"[{minute:6.1f} min] {len(values)} values, epochs {newest}", flush=True)


def _kill(
    platform: Platform, chance: random.Random, victim: str, run: dict[str, Any], began: float
) -> None:
    # before the command, which returns some seconds after the kill
    minute = (time.monotonic() - began) / _MINUTE_S
    try:
        _kill_pod(platform, chance, victim)
    except (CommandFailed, IndexError) as error:
        print(f"{victim} was not killed, it has no pod now: {error}", flush=True)
        return
    run["kills"].append({"minute": round(minute, 2), "victim": victim})
    print(f"[{minute:6.1f} min] {victim} killed", flush=True)


def _kill_pod(platform: Platform, chance: random.Random, victim: str) -> None:
    cluster = platform.cluster
    if victim in SERVERS:
        cluster.kill(pod_of(victim))
    elif victim == "operator":
        platform.operators.kill(chance.choice(platform.operator_pods())["metadata"]["name"])
    elif victim.startswith("executor"):
        cluster.kill(chance.choice(executors(platform)))
    else:
        cluster.kill(platform.driver(victim.removeprefix("driver of ")))


def _is_exact(platform: Platform, job: str, sent: int) -> bool:
    try:
        said = platform.wait_verified(job.replace("-", "_"), job, within_s=_DRAIN_S)
    except AssertionError as error:
        print(error, flush=True)
        return False
    print(said, flush=True)
    return report.nothing_late(said, sent)


if __name__ == "__main__":
    sys.exit(main())
