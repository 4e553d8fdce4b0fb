"""Makes a JVM archive of the classes that a driver loads (JEP 310), which halves a driver's start.

It runs ip_count's windows on a few lines against a Kafka of its own, and records which classes that loads.
The archive is optional: without one, or with one of another JVM, classes are loaded from their jars. The
image of jobs has one too, which its build makes of the same list.
"""

import dataclasses
import hashlib
import os
import shutil
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
from sluicegate.spark import class_archive
from sluicegate.spark.conf import JARS_VARIABLE

_CLASSES: Final = "driver.classes"
"""The names of the classes, in the folder of the jars."""

_PATIENCE_S: Final = 240.0


def classes() -> Path:
    """Return the list of the classes that a driver loads; records it if it is missing."""
    record()
    return maven.folder("spark") / _CLASSES


def identity() -> str:
    """Return what an archive is good for: this JVM and these files, as the JVM itself compares."""
    java = subprocess.run([java_command(), "-version"], capture_output=True, text=True, check=True)
    files = [*maven.pyspark_jars().glob("*.jar"), *maven.folder("spark").glob("*.jar")]
    seen = sorted((str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files)
    digest = hashlib.sha256(repr((java.stderr, seen)).encode()).hexdigest()
    return f"Spark {versions.SPARK} {digest}\n"


def record() -> None:
    """Make list and archive unless there are some that fit.

    Raises:
        ServiceError: Kafka, the driver or the making of the archive failed.
        JarError: a jar cannot be fetched.
    """
    folder = maven.folder("spark")
    stamp, wanted = folder / "driver.stamp", identity()
    made = (
        stamp,
        *(folder / n for n in (_CLASSES, class_archive.ARCHIVE, class_archive.CLASS_PATH)),
    )
    if all(file.is_file() for file in made) and stamp.read_text(encoding="utf-8") == wanted:
        return
    print(
        "Recording the classes that a driver loads, so that it starts in half the time ...",
        flush=True,
    )
    for file in made:
        file.unlink(missing_ok=True)
    with scratch_folder("classes") as scratch:
        broker = KafkaBroker(scratch / "kafka")
        broker.start()
        try:
            _drive(scratch, broker.endpoint.bootstrap)
        finally:
            broker.stop()
        shutil.copyfile(scratch / _CLASSES, folder / _CLASSES)
    try:
        class_archive.write(folder, folder / _CLASSES)
    except subprocess.CalledProcessError as error:
        raise ServiceError(
            f"The archive of the classes could not be made: {error}\n{error.stdout}"
        ) from error
    stamp.write_text(wanted, encoding="utf-8")


def _drive(scratch: Path, bootstrap: str) -> None:
    made = scratch / _CLASSES
    options = f"--driver-java-options -XX:DumpLoadedClassList={made} pyspark-shell"
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
            _wait_until_gone(process.pid)  # the JVM ends, and has written the list, after Python
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
