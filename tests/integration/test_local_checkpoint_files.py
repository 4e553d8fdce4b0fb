"""Spark's own checkpoint files on a disk, as LocalCheckpointFileManager (jobs/java) writes them."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sluicegate.sinks.memory import MemorySink
from sluicegate.spark.checkpoint_files import checkpoint_files
from sluicegate.storage.object_store import LocalObjectStore
from tests.integration.power_cuts import make_disk, mount_after_cut
from tests.robustness.failpoints.disk import cut
from tests.robustness.traffic.memory_streams import Stream

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(180),
    # pyspark leaves the sockets of its results to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

OURS = "dev.sluicegate.spark.LocalCheckpointFileManager"
SPARKS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
)
WRITERS, ROUNDS = 6, 25


def manager(spark: SparkSession, folder: Path, name: str = OURS) -> Any:  # noqa: ANN401 - py4j has no types
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    path = spark._jvm.org.apache.hadoop.fs.Path(folder.as_uri())  # type: ignore[union-attr]
    made = getattr(spark._jvm, name)(path, conf)
    made.mkdirs(path)
    return made


def open_file(spark: SparkSession, files: Any, path: Path, *, replace: bool = False) -> Any:  # noqa: ANN401
    return files.createAtomic(spark._jvm.org.apache.hadoop.fs.Path(path.as_uri()), replace)  # type: ignore[union-attr]


def write(
    spark: SparkSession,
    files: Any,  # noqa: ANN401
    path: Path,
    content: bytes,
    *,
    replace: bool = False,
) -> None:
    output = open_file(spark, files, path, replace=replace)
    output.write(content)
    output.close()


def read(spark: SparkSession, path: Path, size: int) -> bytes:
    """Read a file with Hadoop's FileSystem, which compares it with checksums next to it."""
    jvm_path = spark._jvm.org.apache.hadoop.fs.Path(path.as_uri())  # type: ignore[union-attr]
    system = jvm_path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    stream = system.open(jvm_path)
    content = bytes(stream.readNBytes(size))
    stream.close()
    return content


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_exactly_one_of_six_racing_writers_wins_in_25_rounds(
    spark: SparkSession, tmp_path: Path
) -> None:
    """All open the file and close it at once: one succeeds, five learn that it exists."""
    files, barrier = manager(spark, tmp_path), threading.Barrier(WRITERS)

    def create_file(number: int, path: Path) -> str:
        output = open_file(spark, files, path)
        output.write(b"%d" % number)
        barrier.wait(60)
        try:
            output.close()
        except Py4JJavaError as error:
            return str(error.java_exception.getClass().getSimpleName())
        return "in"

    with ThreadPoolExecutor(WRITERS) as pool:
        for round_ in range(ROUNDS):
            path = tmp_path / str(round_)
            outcomes = list(pool.map(create_file, range(WRITERS), [path] * WRITERS))
            assert Counter(outcomes) == {"in": 1, "FileAlreadyExistsException": WRITERS - 1}
            assert path.read_bytes() == b"%d" % outcomes.index("in")
            assert read(spark, path, 10) == path.read_bytes()


def test_a_replaceable_file_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    """The next attempt overwrites a state file of an undecided attempt."""
    files = manager(spark, tmp_path)
    for content in (b"one", b"another"):
        write(spark, files, tmp_path / "1.delta", content, replace=True)
        assert read(spark, tmp_path / "1.delta", 10) == content
    assert names(tmp_path) == ["1.delta"]


def test_files_of_sparks_own_manager_are_read_and_replaced(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A checkpoint of an earlier version goes on."""
    before, files = manager(spark, tmp_path, SPARKS), manager(spark, tmp_path)
    write(spark, before, tmp_path / "1.delta", b"before")
    assert read(spark, tmp_path / "1.delta", 10) == b"before"
    write(spark, files, tmp_path / "1.delta", b"after", replace=True)
    assert read(spark, tmp_path / "1.delta", 10) == b"after"


def test_a_file_is_created_next_to_checksums_of_an_earlier_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Hadoop would compare the new file with them, and refuse to read it."""
    before, files = manager(spark, tmp_path, SPARKS), manager(spark, tmp_path)
    write(spark, before, tmp_path / "1", b"before")
    (tmp_path / "1").unlink()
    write(spark, files, tmp_path / "1", b"after")
    assert read(spark, tmp_path / "1", 10) == b"after"


def faults_of_ended_children(spark: SparkSession) -> int:
    """Return the page faults of all processes that the JVM has started and that have ended."""
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[8])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("name", "starts_some"), [(OURS, False), (SPARKS, True)])
def test_no_process_is_started_to_write_a_file(
    spark: SparkSession,
    tmp_path: Path,
    name: str,
    starts_some: bool,  # noqa: FBT001
) -> None:
    """Hadoop starts ten for each: a multiple of the time that a small epoch needs otherwise."""
    files, before = manager(spark, tmp_path, name), faults_of_ended_children(spark)
    for number in range(5):
        write(spark, files, tmp_path / str(number), b"{}")
    assert (faults_of_ended_children(spark) > before) is starts_some


def test_a_file_of_a_source_is_complete_after_a_power_cut_if_it_has_its_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    """No record says which of them a decision needs, so a start could not remove an empty one."""
    image, wanted = tmp_path / "disk.img", {"sources/0/0": b"of a source", "offsets/0": b""}
    with ExitStack() as stack:
        disk = make_disk(image, tmp_path / "disk", stack)
        for name in wanted:
            write(spark, manager(spark, (disk / name).parent), disk / name, b"of a source")
        LocalObjectStore(disk).create("epochs/0.report", b"")  # makes names durable
        left = cut(image)
    with ExitStack() as stack:
        store = LocalObjectStore(mount_after_cut(left, tmp_path / "cut", stack))
        assert {name: store.read(name) for name in wanted} == wanted


def test_a_query_writes_its_files_with_our_manager(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop would write checksums of its own. The session's setting stays as it was."""
    stream = Stream(spark, tmp_path, "ip string")
    stream.add([{"ip": "10.0.0.1"}])
    stream.run(stream.rows.groupBy("ip").count(), [MemorySink(stream.store("out"))])
    for folder in ("offsets", "commits", "state"):
        found = [path.name for path in (stream.checkpoint / folder).rglob("*") if path.is_file()]
        assert found
        assert not [name for name in found if name.startswith(".")]
    assert spark.conf.get("spark.sql.streaming.checkpointFileManagerClass", None) is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("ours", [True, False])
def test_no_process_is_started_to_copy_a_file_of_a_state(
    spark: SparkSession,
    tmp_path: Path,
    ours: bool,  # noqa: FBT001
) -> None:
    """Hadoop starts two for each, at each load and each snapshot of a state."""
    (tmp_path / "1.sst").write_bytes(b"state")
    with checkpoint_files(spark, str(tmp_path)) if ours else nullcontext():
        conf = spark._jsparkSession.sessionState().newHadoopConf()
    made = spark._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]
    copied = made((tmp_path / "2.sst").as_uri())
    files, before = copied.getFileSystem(conf), faults_of_ended_children(spark)
    files.copyFromLocalFile(made((tmp_path / "1.sst").as_uri()), copied)
    assert (faults_of_ended_children(spark) > before) is not ours
    assert read(spark, tmp_path / "2.sst", 10) == b"state"
    assert (tmp_path / "2.sst").stat().st_mode == (tmp_path / "1.sst").stat().st_mode
