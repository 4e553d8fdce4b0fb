"""Spark's own checkpoint files on S3: created once, never partial, never silently lost.

Everything runs in this process; killed drivers are in test_s3_drivers.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from infra.local_services import S3Endpoint
from sluicegate import session
from sluicegate.errors import SettingsInvalid, StageFailed
from sluicegate.sinks.memory import MemorySink
from sluicegate.spark import s3a
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import ObjectStore, open_store
from tests.robustness.failpoints.s3_proxy import Fault, Request, S3Proxy, proxied
from tests.robustness.traffic.memory_streams import Stream, failing_at
from tests.spark_sessions import stop

pytestmark = [
    pytest.mark.integration,
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # pyspark's results
]

ROUNDS, WRITERS = 25, 6

PARTITIONS = 4

RETAINED = 5
"""Epochs that Spark retains while requests are counted: files are removed as fast as they are created."""

MAX_REQUESTS_PER_EPOCH = 35
"""Maximum requests per epoch with four state partitions."""


@pytest.fixture(scope="module")
def proxy(bucket: S3Endpoint) -> Iterator[S3Proxy]:
    """Yield the proxy to S3 for all tests of this file, because a JVM opens a bucket once."""
    with proxied(bucket) as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.endpoint.environment().items():
            patch.setenv(name, value)
        yield running


@pytest.fixture(scope="module")
def spark(proxy: S3Proxy) -> Iterator[SparkSession]:
    """Yield one session for all tests of this file."""
    spark_session = session("s3", shuffle_partitions=PARTITIONS)
    s3a.prepare_store(spark_session, proxy.endpoint.url)
    yield spark_session
    file_systems = jvm(spark_session).org.apache.hadoop.fs.FileSystem
    stop(spark_session)
    # after the maintenance of the state stores, which may hang in a closed file system: Spark waits for
    # it for six minutes
    file_systems.closeAll()


@pytest.fixture
def url(proxy: S3Proxy) -> Iterator[str]:
    """Yield an S3 prefix for one test; remove all faults afterwards."""
    yield f"{proxy.endpoint.url}/{uuid.uuid4().hex}"
    proxy.faults.clear()


@pytest.fixture
def objects(url: str) -> ObjectStore:
    """Return Sluicegate's object store for the prefix."""
    return open_store(url)


def jvm(spark: SparkSession) -> Any:  # noqa: ANN401 - py4j has no types
    return spark._jvm


def open_file(spark: SparkSession, url: str, name: str, *, replace: bool = False) -> Any:  # noqa: ANN401
    """Open a checkpoint file as Spark does, through its own file manager."""
    path = jvm(spark).org.apache.hadoop.fs.Path(f"{url.replace('s3://', 's3a://')}/{name}")
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    manager = jvm(spark).dev.sluicegate.spark.FencedCheckpointFileManager(path.getParent(), conf)
    return manager.createAtomic(path, replace)


def write_file(
    spark: SparkSession, url: str, name: str, content: bytes, *, replace: bool = False
) -> None:
    """Write a complete checkpoint file."""
    output = open_file(spark, url, name, replace=replace)
    output.write(content)
    output.close()


def test_an_upload_does_not_wait_for_an_answer_before_it_sends_its_file(
    spark: SparkSession, url: str, proxy: S3Proxy, objects: ObjectStore
) -> None:
    """The header Expect would cost each file a round trip."""
    write_file(spark, url, "state/0/0/1.changelog", b"changes", replace=True)
    write_file(spark, url, "commits/0", b"v1")
    assert objects.read("commits/0") == b"v1"
    assert proxy.waited_for == 0


@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_a_look_for_a_file_of_a_log_is_one_request(
    spark: SparkSession, url: str, proxy: S3Proxy, objects: ObjectStore, log: str
) -> None:
    objects.create(f"{log}/1", b"v1")
    folder = jvm(spark).org.apache.hadoop.fs.Path(f"{url.replace('s3://', 's3a://')}/{log}")
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    manager = jvm(spark).dev.sluicegate.spark.FencedCheckpointFileManager(folder, conf)
    file = jvm(spark).org.apache.hadoop.fs.Path
    start = len(proxy.requests)
    assert [manager.exists(file(folder, str(epoch))) for epoch in (1, 2)] == [True, False]
    assert [request.kind for request in proxy.since(start)] == ["HEAD", "HEAD"]
    assert manager.exists(folder)


def test_exactly_one_of_six_racing_writers_wins_in_25_rounds(
    spark: SparkSession, url: str, objects: ObjectStore
) -> None:
    """All open the file and close it at once: one succeeds, five learn that it exists."""
    barrier = threading.Barrier(WRITERS)

    def create_file(number: int, name: str) -> str:
        output = open_file(spark, url, name)
        output.write(b"%d" % number)
        barrier.wait(60)
        try:
            output.close()
        except Py4JJavaError as error:
            return str(error.java_exception.getClass().getSimpleName())
        return "in"

    with ThreadPoolExecutor(WRITERS) as pool:
        for round_ in range(ROUNDS):
            name = f"offsets/{round_}"
            outcomes = list(pool.map(create_file, range(WRITERS), [name] * WRITERS))
            assert Counter(outcomes) == {"in": 1, "FileAlreadyExistsException": WRITERS - 1}
            assert objects.read(name) == b"%d" % outcomes.index("in")


def test_a_failed_write_is_an_error_of_close(
    spark: SparkSession, proxy: S3Proxy, url: str, objects: ObjectStore
) -> None:
    """Spark's own manager for object stores hides the error and continues without the file."""
    proxy.faults.append(Fault("PUT", "commits/7", "refuse"))
    output = open_file(spark, url, "commits/7")
    output.write(b"v1")
    with pytest.raises(Py4JJavaError, match="AccessDenied"):
        output.close()
    assert objects.read("commits/7") is None


def test_a_lost_reply_is_not_taken_for_another_driver(
    spark: SparkSession, proxy: S3Proxy, url: str, objects: ObjectStore
) -> None:
    """The retry finds the file of the first attempt and recognizes it as its own."""
    proxy.faults.append(Fault("PUT", "offsets/7", "lose-reply"))
    write_file(spark, url, "offsets/7", b"ours")
    assert objects.read("offsets/7") == b"ours"
    assert proxy.faults[0].met == 1


def test_a_replaceable_file_is_replaced(
    spark: SparkSession, url: str, objects: ObjectStore
) -> None:
    """The next attempt overwrites a state file of an undecided attempt."""
    for text in (b"one", b"other"):
        write_file(spark, url, "state/0/0/1.changelog", text, replace=True)
    assert objects.read("state/0/0/1.changelog") == b"other"


def test_a_canceled_file_never_exists(spark: SparkSession, url: str, objects: ObjectStore) -> None:
    output = open_file(spark, url, "offsets/0")
    output.write(b"half")
    output.cancel()
    output.close()
    assert objects.read("offsets/0") is None


def test_a_local_path_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop offers no conditional create on local disks; Spark's own manager is correct there."""
    with pytest.raises(PySparkException, match="without conditional creation"):
        open_file(spark, f"file://{tmp_path}", "offsets/0")


def test_a_session_without_our_classes_is_refused(
    spark: SparkSession, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3a, "FILE_MANAGER", "dev.sluicegate.spark.Absent")
    with pytest.raises(
        SettingsInvalid, match=r"no dev\.sluicegate\.spark\.Absent(.|\n)*SLUICEGATE"
    ):
        s3a.prepare_store(spark, url)


# --- queries -----------------------------------------------------------------------------------------


@pytest.fixture
def hits(spark: SparkSession, tmp_path: Path, url: str) -> Stream:
    """Return a stream of hits, one file per epoch, with its checkpoint on S3."""
    stream = Stream(spark, tmp_path, "ip string, n long", location=url)
    add_epochs(stream, 5)
    return stream


def add_epochs(stream: Stream, epochs: int) -> None:
    """Add epochs with one hit for each of twenty addresses."""
    for _ in range(epochs):
        stream.add([{"ip": f"10.0.0.{i}", "n": 1} for i in range(20)])


def counts(stream: Stream) -> DataFrame:
    """Return the hits per address."""
    return stream.rows.groupBy("ip").agg(F.sum("n").alias("hits"))


def check_counts(stream: Stream, epochs: int) -> None:
    """Assert that the count of each address has no gap and no repeat up to its last hit.

    An epoch whose offsets were refused also reads the next file, because the source keeps its own log.
    """
    row_counts = Counter((row["ip"], row["hits"]) for row in stream.committed_rows("out"))
    assert set(row_counts.values()) == {1}
    newest = {
        ip: max(hits for other_ip, hits in row_counts if other_ip == ip) for ip, _ in row_counts
    }
    assert newest == {f"10.0.0.{i}": epochs for i in range(20)}


@pytest.mark.parametrize("point", ["before-stage", "after-stage", "after-decide", "before-done"])
def test_a_failed_stateful_query_continues_exactly(hits: Stream, point: str) -> None:
    with failing_at(f"{point}@2"):
        hits.run(counts(hits), [MemorySink(hits.store("out"))])
    hits.run(counts(hits), [MemorySink(hits.store("out"))])
    check_counts(hits, 5)


@pytest.mark.parametrize("name", ["offsets/2", "commits/2", r"state/0/1/3\.changelog"])
def test_a_failed_write_stops_the_query_and_a_restart_continues(
    hits: Stream, proxy: S3Proxy, name: str
) -> None:
    proxy.faults.append(Fault("PUT", f"{name}$", "refuse", times=99))
    with pytest.raises(StageFailed):
        hits.run(counts(hits), [MemorySink(hits.store("out"))])
    assert proxy.faults[0].met
    proxy.faults.clear()
    hits.run(counts(hits), [MemorySink(hits.store("out"))])
    check_counts(hits, 5)


def test_other_queries_of_the_session_keep_their_file_manager(
    hits: Stream, spark: SparkSession
) -> None:
    hits.run(counts(hits), [MemorySink(hits.store("out"))])
    assert spark.conf.get("spark.sql.streaming.checkpointFileManagerClass", None) is None


def test_an_epoch_makes_at_most_35_requests(
    hits: Stream, spark: SparkSession, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Includes removals; the query has four state partitions. Prints the requests.

    Excludes the log of this test's file source, because the Kafka source has none.
    """
    setting = "spark.sql.streaming.minBatchesToRetain"
    first, last = 2 * RETAINED, 2 * RETAINED + 10  # every tenth epoch prunes the epoch log
    add_epochs(hits, last)
    start = len(proxy.requests)
    with monkeypatch.context() as patch:
        patch.setattr(StoredEpochLog.__init__, "__kwdefaults__", {"retained": RETAINED})
        spark.conf.set(setting, RETAINED)
        try:
            hits.run(counts(hits), [MemorySink(hits.store("out"))])
        finally:
            spark.conf.unset(setting)
    requests = [request for request in proxy.since(start) if "/sources/" not in request.name]
    commit_indexes = [
        i
        for i, request in enumerate(requests)
        if request.kind == "PUT" and "/commits/" in request.name
    ]
    measured = requests[commit_indexes[first] + 1 : commit_indexes[last] + 1]
    per_epoch = len(measured) / (last - first)
    counts_by_kind = Counter(f"{request.kind:6} {_object_kind(request)}" for request in measured)
    lines = [
        f"{count / (last - first):6.2f}  {kind}" for kind, count in sorted(counts_by_kind.items())
    ]
    print(  # noqa: T201 - the purpose of the test is to measure this
        f"\n{per_epoch:.2f} requests an epoch, {PARTITIONS} state partitions:", *lines, sep="\n"
    )
    assert per_epoch <= MAX_REQUESTS_PER_EPOCH


def _object_kind(request: Request) -> str:
    """Return the folder of a request's object, without checkpoint prefix and numbers."""
    parts = re.sub(r"^.*?[0-9a-f]{32}/|\?$", "", request.name).split("/")
    return "/".join(re.sub(r"^\d+", "N", part) for part in parts) or "/"
