"""Records a JVM archive of the classes that a driver loads (JEP 350), which halves a driver's start.

It runs ip_count's windows on a few lines against a Kafka of its own. The archive is optional: without one,
or with one of another JVM, classes are loaded from their jars.
"""

import dataclasses
import hashlib
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from infra import versions
from infra.local_services import KafkaBroker, ServiceError
from infra.preflight import java_command
from infra.toolchain import maven
from infra.toolchain.maven import JarError
from infra.workspace import scratch_folder
from sluicegate.spark.session import CLASS_ARCHIVE, JARS_VARIABLE

_PATIENCE_S: Final = 240.0


def archive() -> Path:
    """Return where the archive is, or will be."""
    return maven.folder("spark") / CLASS_ARCHIVE


def identity() -> str:
    """Return what an archive is good for: this JVM and these files, as the JVM itself compares."""
    java = subprocess.run([java_command(), "-version"], capture_output=True, text=True, check=True)
    files = [*maven.pyspark_jars().glob("*.jar"), *maven.folder("spark").glob("*.jar")]
    seen = sorted((str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files)
    digest = hashlib.sha256(repr((java.stderr, seen)).encode()).hexdigest()
    return f"Spark {versions.SPARK} {digest}\n"


def record() -> None:
    """Make the archive unless there is one that fits; ServiceError if Kafka or the driver fails."""
    stamp = archive().with_suffix(".stamp")
    wanted = identity()
    if archive().is_file() and stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return
    print(
        "Recording the classes that a driver loads, so that it starts in half the time ...",
        flush=True,
    )
    archive().unlink(missing_ok=True)
    with scratch_folder("classes") as scratch:
        broker = KafkaBroker(scratch / "kafka")
        broker.start()
        try:
            _drive(scratch, broker.endpoint.bootstrap)
        finally:
            broker.stop()
    stamp.write_text(wanted, encoding="utf-8")


def _drive(scratch: Path, bootstrap: str) -> None:
    made = scratch / CLASS_ARCHIVE
    options = f"--driver-java-options -XX:ArchiveClassesAtExit={made} pyspark-shell"
    jars = str(maven.folder("spark"))
    environment = os.environ | {JARS_VARIABLE: jars, "PYSPARK_SUBMIT_ARGS": options}
    command = [sys.executable, "-m", "infra.class_data_sharing", bootstrap, str(scratch)]
    log = scratch / "driver.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        code = process.wait(_PATIENCE_S)
        if code == 0:
            _wait_until_gone(process.pid)  # the JVM writes the archive after Python has ended
    except subprocess.TimeoutExpired as late:
        raise ServiceError(
            f"The driver that was to record its classes did not end in {_PATIENCE_S:g} s."
        ) from late
    finally:
        # it has a session of its own, which Ctrl-C does not reach
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if code != 0 or not made.is_file():
        last = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
        raise ServiceError(f"The driver that was to record its classes ended with {code}:\n{last}")
    made.rename(archive())


def _wait_until_gone(group: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise ServiceError(f"The JVM of process group {group} did not end in {_PATIENCE_S:g} s.")


def drive(bootstrap: str, folder: Path) -> None:
    """Run ip_count without its table on a few lines, in a JVM of its own."""
    from sluicegate.spark.session import session  # noqa: PLC0415 - the recorded half only
    from sluicegate_jobs.ip_count import job  # noqa: PLC0415
    from sluicegate_jobs.targets import create_topics  # noqa: PLC0415

    settings = job.IpCountSettings(
        checkpoint=str(folder / "checkpoint"), kafka=bootstrap, interval="available-now"
    )
    topics = (settings.source, settings.topic, settings.dead_letters)
    create_topics(bootstrap, topics, partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for second in range(10):
        at = f"07/Jan/2026:12:00:{second:02d} +0000"
        producer.produce(settings.source, f'10.0.0.1 - - [{at}] "GET / HTTP/1.1" 200 1 "-" "-"')
    producer.flush(30)
    writer = job.build(session("classes"), settings)
    topics_only = tuple(s for s in writer.sinks if s.id.startswith("kafka."))
    query = dataclasses.replace(writer, sinks=topics_only).start()
    query.await_end(_PATIENCE_S)


def main(arguments: list[str]) -> int:
    """Record, or be the driver that is recorded."""
    if arguments:
        drive(arguments[0], Path(arguments[1]))
        return 0
    try:
        record()
    except (JarError, ServiceError) as error:
        print(f"{error}\nGoing on without the archive: drivers start slower.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
