"""What follows from the facts of a checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.console.charts import ribbon, waterfall
from sluicegate.console.ladder import ladder
from sluicegate.console.ledger import dead_letters, ledger
from sluicegate.console.model import (
    JobFacts,
    Problem,
    State,
    condition,
    state_size,
)
from sluicegate.console.offsets import Range, sources
from sluicegate.protocol.record import Seal
from sluicegate.storage.driver_failure import DriverFailure
from sluicegate.storage.driver_start import JOB, DriverStart
from tests.unit.console.builders import HOUR_MS, KAFKA, MYSQL, NOW_MS, epoch, job, report

OLD_MS = NOW_MS - HOUR_MS
SEAL = Seal("s", "l", "orders", 2, "moved", NOW_MS)


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (job(), State.NEW),
        (job(epoch(0), planned=0), State.RUNNING),
        (job(epoch(0, at_ms=OLD_MS), planned=0), State.IN_DOUBT),
        (job(epoch(0, at_ms=OLD_MS), planned=0, committed=0), State.QUIET),
        (job(epoch(0, at_ms=OLD_MS), planned=1, committed=0), State.UNDECIDED),
        (job(planned=0), State.UNDECIDED),
        (replace(job(epoch(1), committed=1), seal=SEAL), State.SEALED),
        (replace(job(epoch(1)), problems=(Problem("torn"),)), State.DAMAGED),
    ],
)
def test_the_state_of_a_job(facts: JobFacts, state: State) -> None:
    assert condition(facts, NOW_MS).state is state


def test_a_job_with_hourly_epochs_is_not_quiet_after_a_minute() -> None:
    hourly = job(epoch(0, at_ms=NOW_MS - 3 * HOUR_MS), epoch(1, at_ms=OLD_MS), committed=1)
    assert condition(hourly, NOW_MS).state is State.RUNNING


def test_a_decided_epoch_is_in_doubt_until_the_checkpoint_proves_it_applied() -> None:
    facts = job(epoch(6), epoch(7), committed=6)
    assert (facts.every_sink_has, facts.in_doubt) == (6, facts.newest)
    assert job(epoch(7), committed=7).every_sink_has == 7
    assert replace(facts, marked=frozenset({7})).every_sink_has == 7
    assert job(epoch(7, report=report(7))).every_sink_has == 7
    assert job(epoch(7, report=replace(report(7), attempt="other"))).every_sink_has == 6


def test_sparks_commit_proves_nothing_about_an_overlapped_epoch() -> None:
    assert job(epoch(7, overlapped=True), committed=7).every_sink_has == 6


def test_the_first_epoch_in_doubt_leaves_no_epoch_that_every_sink_has() -> None:
    facts = job(epoch(0))
    assert facts.every_sink_has is None
    assert [rung.note for rung in ladder(facts) if rung.in_doubt] == ["has none, or 0 too"]


def test_the_ladder_says_which_sinks_are_in_doubt_and_since_when() -> None:
    rungs = {rung.who: rung for rung in ladder(job(epoch(7, at_ms=OLD_MS), planned=7, committed=6))}
    assert (rungs[KAFKA].in_doubt, rungs[KAFKA].since_ms) == (True, OLD_MS)
    assert rungs[KAFKA].note == "has 6, or 7 too"
    assert (rungs[MYSQL].in_doubt, rungs[MYSQL].note) == (False, "no rows for it")
    assert (rungs["decided"].epoch, rungs["committed by Spark"].epoch) == (7, 6)


def test_the_ladder_names_discarded_rows() -> None:
    facts = replace(job(epoch(7), committed=7), discarded={7: frozenset({KAFKA})})
    assert "DISCARDED: never gets its 10 rows" in [rung.note for rung in ladder(facts)]


def next_try(facts: JobFacts) -> tuple[str, int] | None:
    """Return note and time of the rung about the next try."""
    last = ladder(facts)[-1]
    return (last.note, last.at_ms) if last.who == "next try" else None


def test_the_ladder_says_when_a_new_driver_tries_again() -> None:
    failure = DriverFailure(NOW_MS, 3.0, 75, then="restart in 9 s", next_try_ms=NOW_MS + 9_000)
    facts = replace(job(epoch(7), committed=6), failed=failure)
    assert next_try(facts) == ("by a new driver", NOW_MS + 9_000)


def test_the_ladder_says_that_nothing_is_tried_again() -> None:
    failure = DriverFailure(NOW_MS, 3.0, 65, then="a restart cannot help")
    facts = replace(job(epoch(7), committed=6), failed=failure)
    assert next_try(facts) == ("a restart cannot help", 0)


def test_the_ladder_names_the_command_that_knows_when_the_operator_tries_again() -> None:
    facts = replace(
        job(epoch(7), committed=6),
        failed=DriverFailure(NOW_MS, 3.0, 75),
        starts=(DriverStart(OLD_MS, {JOB: "shop/orders"}),),
    )
    found = next_try(facts)
    assert found is not None
    assert "kubectl sluicegate -n shop why orders" in found[0]


def test_an_apply_in_doubt_is_tried_again_by_its_driver() -> None:
    facts = job(epoch(7), committed=6)
    found = next_try(facts)
    assert found is not None
    assert "tries an apply up to 8 times" in found[0]
    doubt = facts.in_doubt
    assert doubt is not None
    lossy = replace(facts, epochs=(replace(doubt, delivery="at-most-once"),))
    assert (next_try(lossy), next_try(replace(facts, seal=SEAL))) == (None, None)
    assert next_try(job(epoch(7), committed=7)) is None


def test_the_ledger_accounts_for_each_row_that_came_in() -> None:
    counts = {"rows_in": 12, "refused": 2, "dead_letters_null": 2}
    found = ledger([epoch(0, counts=counts), epoch(1, counts=counts)])
    assert found is not None
    assert (found.first, found.last, found.rows_in, found.refused) == (0, 1, 24, 4)
    assert [(line.sink, line.rows, line.difference) for line in found.lines] == [
        (KAFKA, 20, 0),
        (MYSQL, 0, 20),
    ]


@pytest.mark.parametrize(
    ("counts", "late"),
    [
        ({"dead_letters_late": 3, "dead_letters_unparsed": 2}, 3),  # both from an output
        ({"refused": 3, "dead_letters_late": 3}, 0),  # the job refused them
        ({"refused": 1, "dead_letters_late": 3, "dead_letters_refused": 1}, 3),
        ({"refused": 4, "dead_letters_late": 3}, 0),  # some letters were not counted by kind
    ],
)
def test_a_late_row_is_counted_once_whether_or_not_it_was_refused(
    counts: dict[str, int], late: int
) -> None:
    found = ledger([epoch(0, counts={"rows_in": 20, **counts})])
    assert found is not None
    assert found.late == late
    assert found.lines[0].difference == 20 - found.refused - late - 10


def test_the_ledger_has_no_difference_if_rows_in_were_not_always_counted() -> None:
    found = ledger([epoch(0, counts={"rows_in": 12}), epoch(1)])
    assert found is not None
    assert (found.rows_in, found.lines[0].difference) == (None, None)


def test_dead_letters_are_added_up_by_kind() -> None:
    first = epoch(0, counts={"dead_letters_null": 1, "dead_letters_late": 3})
    assert dead_letters([first, epoch(1, counts={"dead_letters_null": 4})]) == [
        ("null", 5),
        ("late", 3),
    ]


def test_a_job_whose_driver_failed_last_has_failed_although_its_epoch_is_recent() -> None:
    failure = DriverFailure(NOW_MS, 3.0, 75, kind="SinkUnavailable", then="restart in 9 s")
    facts = replace(job(epoch(7), committed=7), failed=failure)
    of = condition(facts, NOW_MS + 1)
    assert (of.state, of.since_ms) == (State.FAILED, NOW_MS)
    assert "(SinkUnavailable), and no driver has started since: restart in 9 s." in of.sentence


def test_a_driver_that_was_killed_has_an_exit_code_for_a_reason() -> None:
    facts = replace(job(epoch(7), committed=7), failed=DriverFailure(NOW_MS, 3.0, -9))
    assert "Its driver failed (exit code -9)" in condition(facts, NOW_MS).sentence


@pytest.mark.parametrize(
    ("rows", "grows"),
    [((10, 20), True), ((10, 19), False), ((10, 40, 30), False), ((0, 5), True), ((0, 0), False)],
)
def test_a_state_grows_if_it_doubles_and_never_shrinks(
    rows: tuple[int, ...], *, grows: bool
) -> None:
    found = state_size([epoch(n, counts={"state_rows": of}) for n, of in enumerate(rows)])
    assert found is not None
    assert (found.first, found.before) == (0, rows[0])
    assert (found.last, found.rows, found.grows) == (len(rows) - 1, rows[-1], grows)


def test_a_job_without_state_has_no_size_of_it() -> None:
    assert state_size([epoch(0)]) is None


def test_the_longest_epoch_of_a_ribbon_has_the_full_height() -> None:
    stage, apply = ("stage", "", None, 30.0), ("apply", KAFKA, None, 10.0)
    short, long = epoch(0, report=report(0, apply)), epoch(1, report=report(1, stage, apply))
    bars = ribbon([short, long, epoch(2)])
    assert [sum(segment.length for segment in bar.segments) for bar in bars] == [25.0, 100.0, 0.0]
    assert [segment.css for segment in bars[1].segments] == ["stage", "sink0"]
    assert bars[2].label.endswith("no report")


def test_a_waterfall_is_as_wide_as_its_steps() -> None:
    lines = waterfall(report(0, ("stage", "", None, 60.0), ("apply", KAFKA, None, 40.0)))
    assert [(line.segment.start, line.segment.length) for line in lines] == [(0, 60), (60, 40)]


def test_offsets_of_kafka_are_shown_by_partition() -> None:
    def stored(line: str) -> bytes:
        return f'v1\n{{"conf":{{"secret":"s"}}}}\n{line}'.encode()

    (of,) = sources(stored('{"t":{"0":5}}'), stored('{"t":{"0":9,"1":3}}'))
    assert of.ranges == (Range("t", "0", 5, 9), Range("t", "1", None, 3))
    (other,) = sources(None, stored('{"logOffset":3}'))
    assert (other.text, other.ranges) == ('{"logOffset":3}', ())
    assert sources(None, None) == []


def test_a_job_is_behind_since_the_oldest_input_that_a_sink_lacks() -> None:
    done = epoch(0, at_ms=NOW_MS)
    assert job(done, committed=0).behind_since_ms == 0
    assert job(done, planned=1, committed=0).behind_since_ms == NOW_MS - HOUR_MS
    assert job(done).behind_since_ms == NOW_MS, "it is in doubt since its decision"


def test_a_sealed_job_is_not_behind_although_spark_had_planned_an_epoch() -> None:
    planned = job(epoch(0, at_ms=NOW_MS), planned=1, committed=0)
    seal = Seal("s", "l", "orders", 1, "moved", NOW_MS)
    assert replace(planned, seal=seal).behind_since_ms == 0


def test_a_job_is_behind_since_its_driver_saw_input_that_its_last_epoch_left() -> None:
    left = replace(report(0), waits_since_ms=NOW_MS - 2 * HOUR_MS)
    done = epoch(0, at_ms=NOW_MS, report=left)
    assert job(done, committed=0).behind_since_ms == NOW_MS - 2 * HOUR_MS
    assert job(done, epoch(1, at_ms=NOW_MS)).behind_since_ms == NOW_MS - 2 * HOUR_MS
    without = job(done, epoch(1, at_ms=NOW_MS), committed=1)
    assert without.behind_since_ms == 0, "a later epoch may have read it"
