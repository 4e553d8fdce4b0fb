"""`make demo`: an access log through Kafka into Kafka and MySQL, exact in spite of three kills.

Starts the services, replays the log, runs ip_count with its supervisor, kills the driver at three
failpoints, compares both sinks with an independent recomputation and writes a report page.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.demo.access_log import write_log
from infra.demo.producer import count_lines, replay
from infra.demo.report import Kill, write_report
from infra.local_services import Services
from infra.toolchain.maven import folder
from infra.workspace import work_folder
from sluicegate.cli.options import as_arguments
from sluicegate.errors import SluicegateError
from sluicegate.packaged_job import Verification
from sluicegate_jobs.ip_count.job import IpCountSettings, create_targets
from sluicegate_jobs.ip_count.verify import verify

KILLS = (
    ("before-decide", "", 2, "staged, not decided: nothing of it may ever be seen", "run again"),
    ("after-decide", "", 4, "decided, in no sink: it must reach both", "replayed from its record"),
    (
        "after-apply",
        "kafka.ip_count_sink",
        6,
        "in Kafka, not in MySQL: it must reach MySQL and not Kafka again",
        "replayed from its record",
    ),
)
"""Failpoint, sink, epoch, what is durable there, what the restart does."""

_EPOCHS = 10
_DRAIN_S = 400.0


class Demo:
    """One run: its folder, its settings and what happened."""

    def __init__(self, folder: Path, seconds: float, max_lines: int) -> None:
        """Start from nothing: an old checkpoint would belong to other topics."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder, self.seconds = folder, seconds
        self.settings = IpCountSettings(
            checkpoint=str(folder / "checkpoint"),
            max_records=max_lines,
            timeout_s=180.0,  # a first epoch on a busy laptop
            restart_attempts=len(KILLS),
            restart_delay_s=1.0,
        )
        self.began = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line with the time since the start."""
        print(f"[{time.monotonic() - self.began:5.1f} s] {text}", flush=True)

    @property
    def traces(self) -> Path:
        """The file of spans."""
        return self.folder / "traces.jsonl"

    def once(self, point: str) -> Path:
        """Return the file that says a failpoint has fired, and when."""
        return self.folder / f"killed-{point}"

    def failpoints(self) -> str:
        """Return the failpoints as the driver's environment takes them."""
        return ";".join(
            f"{point}{f':{sink}' if sink else ''}@{epoch}=kill-group~{self.once(point)}"
            for point, sink, epoch, *_ in KILLS
        )

    def kills(self) -> list[Kill]:
        """Return the kills that happened."""
        return [
            Kill(
                point=f"{point}{f' ({sink})' if sink else ''}",
                epoch=epoch,
                at_ns=self.once(point).stat().st_mtime_ns,
                durable=durable,
                restart=restart,
            )
            for point, sink, epoch, durable, restart in KILLS
            if self.once(point).exists()
        ]


@contextmanager
def driver(demo: Demo) -> Iterator[subprocess.Popen[str]]:
    """Run ip_count under its supervisor; print its epochs; stop it at an epoch's end."""
    environment = os.environ | {
        "SLUICEGATE_FAILPOINTS": demo.failpoints(),
        "SLUICEGATE_TRACE_FILE": str(demo.traces),
        "SLUICEGATE_JARS": str(folder("spark")),
    }
    command = [sys.executable, "-m", "sluicegate.cli", "run", "ip_count"]
    command += as_arguments(demo.settings)
    with (demo.folder / "driver.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        reader = threading.Thread(target=_relay, args=(demo, process, log), daemon=True)
        reader.start()
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.wait(60)
            reader.join(5)


def _relay(demo: Demo, process: subprocess.Popen[str], log: object) -> None:
    """Keep the driver's log, and show the lines that tell the story."""
    shown = (" sluicegate.epoch: ", " sluicegate.run: ")
    for line in process.stderr or ():
        print(line, end="", file=log, flush=True)  # type: ignore[call-overload]
        for name in shown:
            if name in line:
                demo.say(f"    {line.split(name, 1)[1].rstrip()}")


def committed_lines(checkpoint: Path) -> int:
    """Return how many lines of the source Spark has committed."""
    commits = [int(p.name) for p in (checkpoint / "commits").glob("*") if p.name.isdecimal()]
    if not commits:
        return 0
    offsets = (checkpoint / "offsets" / str(max(commits))).read_text().splitlines()
    return sum(n for topic in json.loads(offsets[2]).values() for n in topic.values())


def run(log: Path | None, lines: int, seconds: float) -> int:
    """Run the demo; return the exit code."""
    count = count_lines(log) if log else lines
    # so many epochs at least, however slow the machine is: each kill needs its own
    demo = Demo(work_folder() / "demo", seconds, max_lines=max(1, count // _EPOCHS))
    if log is None:
        log = demo.folder / "access.log"
        what = "heavy-tailed addresses, late and broken lines"
        demo.say(f"Writing an access log of {lines:,} lines: {what}")
        write_log(log, lines=lines, seed=7)
    demo.say("Starting Kafka and MariaDB")
    with Services() as services:
        os.environ["SLUICEGATE_KAFKA"] = services.kafka.bootstrap
        os.environ["SLUICEGATE_MYSQL"] = services.mysql.url
        demo.say(f"Creating {', '.join(create_targets(demo.settings)) or 'nothing: all is there'}")
        demo.say(f"Replaying {log.name} into Kafka over {seconds:.0f} s, with its own event times")
        sent: list[int] = []

        def feed() -> None:
            sent.append(replay(log, services.kafka.bootstrap, demo.settings.source, seconds))

        feeder = threading.Thread(target=feed, daemon=True)
        feeder.start()
        demo.say(f"Starting ip_count; it will be killed (kill -9) {len(KILLS)} times:")
        for point, _sink, epoch, durable, _ in KILLS:
            demo.say(f"    at {point} of epoch {epoch}: {durable}")
        with driver(demo) as process:
            finished = _wait(demo, process, feeder, sent)
            demo.say("Stopping ip_count at the end of its epoch")
        demo.say("Recomputing the answer from the source, and comparing both sinks")
        outcome = verify(demo.settings)
    return _conclude(demo, outcome, finished=finished, lines=sent[0] if sent else 0)


def _wait(
    demo: Demo, process: subprocess.Popen[str], feeder: threading.Thread, sent: list[int]
) -> bool:
    """Wait until every line that was sent is committed; False if that did not come about."""
    deadline = time.monotonic() + demo.seconds + _DRAIN_S
    while time.monotonic() < deadline and process.poll() is None:
        replayed = sent and not feeder.is_alive()
        if replayed and committed_lines(Path(demo.settings.checkpoint)) >= sent[0]:
            return len(demo.kills()) == len(KILLS)
        time.sleep(0.5)
    return False


def _conclude(demo: Demo, outcome: Verification, *, finished: bool, lines: int) -> int:
    kills = demo.kills()
    print(f"\n  {'killed at':<36} {'epoch':>5}  {'what was durable':<68} restart")
    for kill in kills:
        print(f"  {kill.point:<36} {kill.epoch:>5}  {kill.durable:<68} {kill.restart}")
    print()
    for label, number in outcome.checked.items():
        print(f"  {number:>10,}  {label}")
    for finding in outcome.findings:
        print(f"  {finding.kind.upper()}: {finding.count:,}  {'; '.join(finding.examples)}")
    traces = demo.traces.read_text().splitlines() if demo.traces.exists() else []
    spans = [json.loads(line) for line in traces]
    page = demo.folder / "report.html"
    write_report(page, spans, kills, outcome, {"lines sent": f"{lines:,}"})
    print()
    if outcome.exact and finished:
        demo.say(f"EXACT: nothing lost, duplicated, wrong or undecided, after {len(kills)} kills")
    else:
        unfinished = "the run did not come to its end; see driver.log"
        demo.say(unfinished if outcome.exact else "NOT EXACT")
    demo.say(f"Report: {page}")
    return 0 if outcome.exact and finished else 1


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument(
        "--log", type=Path, help="an access log, plain or .gz; default: a generated one"
    )
    parser.add_argument("--lines", type=int, default=20_000, help="lines of the generated log")
    parser.add_argument("--seconds", type=float, default=75, help="how long the replay takes")
    given = parser.parse_args()
    if given.log is not None and not given.log.is_file():
        advice = "give LOG=/path/to/access.log or access.log.gz"
        print(f"{given.log}: no such file; {advice}", file=sys.stderr)
        return 2
    try:
        return run(given.log, given.lines, given.seconds)
    except SluicegateError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
