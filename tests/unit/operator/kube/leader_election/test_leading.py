"""Leader election, with a Lease in memory and no clock but the test's.

These are the cases of client-go's own tests (`tools/leaderelection`), where they apply; `test_release.py` has
those of a release:

| client-go | here |
|---|---|
| TryAcquireOrRenew: no object | `test_a_lease_that_does_not_exist_is_created` |
| ... without annotations, unled, empty led | `test_a_lease_without_a_holder_is_acquired_at_once` |
| ... led, with the lease duration seconds | `test_a_lease_is_taken_over_after_the_duration_that_it_names` |
| ... led, unacked | `test_a_lease_is_taken_over_once_it_was_not_renewed_for_its_duration` |
| ... led, acked | `test_a_lease_that_is_renewed_is_not_taken_over_whatever_its_times_say` |
| ... already acquired; LabelUpdate, LeaseConversion | `test_a_renewal_changes_nothing_but_its_time` |
| renew until RenewDeadline | `test_a_leader_without_an_answer_leads_until_its_deadline` |
| ... with a request that hangs | `test_a_leader_whose_requests_hang_stops_at_its_deadline` |
| FastPathLeaderElection: conflict of an update | `test_a_conflict_does_not_end_the_term_of_a_leader` |
| LeaderElectionConfigValidation | `test_a_leader_stops_before_another_may_take_over` |
| jitter of the retries | `test_of_candidates_that_try_at_the_same_moment_one_leads` |

Not applicable: TryCoordinatedRenew and LeaseCandidate (no coordinated election), the fast path itself (each
renewal reads first), CheckMethodRace (one thread), the health adaptor (a leader whose term has ended stops
acting; no probe ends it), and the events of the recorder (leadership is a metric and a line of the log).
"""

from __future__ import annotations

import asyncio
import copy

import pytest

from sluicegate_operator.kube.leader_election import (
    DURATION_S,
    RENEW_S,
    RETRY_S,
    WATCH_S,
)
from sluicegate_operator.kube.resource import Json
from tests.unit.operator.clocks import Clock, run_in_skipped_time
from tests.unit.operator.kube.leader_election.lease_server import LeaseServer, elector, try_during


def test_a_leader_stops_before_another_may_take_over() -> None:
    """A try may begin a pause later, and takes up to half of the time for which a leader acts."""
    assert RETRY_S + RENEW_S / 2 < RENEW_S < DURATION_S


def test_a_lease_that_does_not_exist_is_created(clock: Clock, server: LeaseServer) -> None:
    assert asyncio.run(try_during(clock, elector(server, "a"), 0)) == [True]
    assert server.spec["holderIdentity"] == "a"
    assert server.spec["leaseDurationSeconds"] == DURATION_S


@pytest.mark.parametrize(
    "spec", [{}, {"holderIdentity": ""}, {"holderIdentity": None}], ids=["empty", "no one", "null"]
)
def test_a_lease_without_a_holder_is_acquired_at_once(
    clock: Clock, server: LeaseServer, spec: Json
) -> None:
    server.store({"metadata": {"name": "lease"}, "spec": {"leaseTransitions": 4, **spec}})
    assert asyncio.run(try_during(clock, elector(server, "a"), 0)) == [True]
    assert server.spec["leaseTransitions"] == 5


def test_a_lease_is_taken_over_once_it_was_not_renewed_for_its_duration(
    clock: Clock, server: LeaseServer
) -> None:
    server.held_by("b", leaseTransitions=1)
    pauses = (1000.0, DURATION_S - 1, 1.0)  # the first try sees the Lease for the first time
    assert asyncio.run(try_during(clock, elector(server, "a"), *pauses)) == [False, False, True]
    assert server.spec["leaseTransitions"] == 2


def test_a_dead_leader_is_replaced_within_five_seconds(clock: Clock, server: LeaseServer) -> None:
    """Whenever it dies: the candidate reads the Lease often, and tries at the moment of its expiry."""
    began: list[float] = []

    async def scenario(died_after_s: float) -> None:
        leader, candidate = elector(server, "a"), elector(server, "b")
        candidate.changed = lambda _leads: began.append(clock.now)
        leading = asyncio.create_task(leader.run())
        await asyncio.sleep(0.3)  # the two do not read at the same moments
        waiting = asyncio.create_task(candidate.run())
        await asyncio.sleep(died_after_s)
        leading.cancel()
        died = clock.now
        await asyncio.sleep(DURATION_S + RETRY_S + WATCH_S)
        waiting.cancel()
        await asyncio.gather(leading, waiting, return_exceptions=True)
        assert DURATION_S - RETRY_S <= began[-1] - died <= DURATION_S + WATCH_S

    for died_after_s in (0.71, 1.69, 8.2):
        server.lease = None
        run_in_skipped_time(clock, scenario(died_after_s))


def test_the_duration_of_anothers_lease_counts_while_a_candidate_only_observes(
    clock: Clock, server: LeaseServer
) -> None:
    """A new pod reads thousands of objects before it may lead; the Lease of a dead leader expires meanwhile."""
    candidate = elector(server, "a")
    server.held_by("b")
    acquired: list[float] = []
    candidate.changed = lambda _leads: acquired.append(clock.now - 1000)

    async def scenario() -> None:
        observing = asyncio.create_task(candidate.observe())
        await asyncio.sleep(DURATION_S - 1)
        observing.cancel()
        await asyncio.gather(observing, return_exceptions=True)
        running = asyncio.create_task(candidate.run())
        await asyncio.sleep(DURATION_S)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run_in_skipped_time(clock, scenario())
    assert acquired == [pytest.approx(DURATION_S, abs=0.01)]


def test_a_candidate_that_only_observes_acquires_no_lease(
    clock: Clock, server: LeaseServer
) -> None:
    """Neither a missing one nor one that nobody holds, nor after a read that failed."""
    candidate = elector(server, "a")

    async def scenario() -> None:
        observing = asyncio.create_task(candidate.observe())
        await asyncio.sleep(1)
        assert server.lease is None
        server.answers = False
        await asyncio.sleep(1)
        server.answers = True
        server.held_by("")
        await asyncio.sleep(2 * DURATION_S)
        assert not observing.done()
        observing.cancel()
        await asyncio.gather(observing, return_exceptions=True)

    run_in_skipped_time(clock, scenario())
    assert server.spec["holderIdentity"] == ""
    assert not candidate.is_leader


def test_a_lease_is_taken_over_after_the_duration_that_it_names(
    clock: Clock, server: LeaseServer
) -> None:
    server.held_by("b", leaseDurationSeconds=60)
    pauses = (0.0, DURATION_S, 59 - DURATION_S, 1.0)
    assert asyncio.run(try_during(clock, elector(server, "a"), *pauses)) == [False] * 3 + [True]


@pytest.mark.parametrize("skew_h", [-5, 0, 5])
def test_a_lease_that_is_renewed_is_not_taken_over_whatever_its_times_say(
    clock: Clock, server: LeaseServer, skew_h: int
) -> None:
    """The clocks of the machines may differ."""

    def renewed() -> None:
        hour = 12 + skew_h
        minute, second = divmod(int(clock.now) % 3600, 60)
        server.held_by("b", renewTime=f"2026-01-01T{hour:02}:{minute:02}:{second:02}.000000Z")

    tries = try_during(clock, elector(server, "a"), *[RETRY_S] * 20, meanwhile=renewed)
    assert not any(asyncio.run(tries))


@pytest.mark.parametrize("year", [1999, 2099])
def test_an_expired_lease_is_taken_over_whatever_its_times_say(
    clock: Clock, server: LeaseServer, year: int
) -> None:
    server.held_by("b", renewTime=f"{year}-01-01T00:00:00.000000Z")
    assert asyncio.run(try_during(clock, elector(server, "a"), 0.0, DURATION_S)) == [False, True]


def test_a_change_of_the_leases_metadata_is_no_renewal(clock: Clock, server: LeaseServer) -> None:
    """A tool that labels all objects every few seconds would keep the Lease of a dead leader."""
    server.held_by("b")
    tries = try_during(
        clock, elector(server, "a"), 0.0, DURATION_S - 1, 1.0, meanwhile=server.touch
    )
    assert asyncio.run(tries) == [False, False, True]


def test_another_holder_has_the_full_duration_again(clock: Clock, server: LeaseServer) -> None:
    candidate = elector(server, "a")

    async def scenario() -> None:
        server.held_by("b")
        assert await try_during(clock, candidate, 0.0, DURATION_S - 1) == [False, False]
        server.held_by("c")
        assert await try_during(clock, candidate, 1.0, DURATION_S - 1, 1.0) == [False, False, True]

    asyncio.run(scenario())


def test_a_renewal_changes_nothing_but_its_time(clock: Clock, server: LeaseServer) -> None:
    candidate = elector(server, "a")

    async def scenario() -> None:
        await candidate.renew()
        server.spec["strategy"] = "OldestEmulationVersion"
        server.touch()
        acquired = copy.deepcopy(server.lease)
        assert acquired is not None
        assert await try_during(clock, candidate, RETRY_S) == [True]
        assert server.lease is not None
        assert server.spec["renewTime"] > acquired["spec"]["renewTime"]
        assert server.spec == {**acquired["spec"], "renewTime": server.spec["renewTime"]}
        assert server.lease["metadata"]["labels"] == acquired["metadata"]["labels"]

    asyncio.run(scenario())


def test_a_process_with_the_identity_of_the_lease_acquires_it_at_once(
    clock: Clock, server: LeaseServer
) -> None:
    """It is the next container of the same pod."""

    async def scenario() -> None:
        await elector(server, "a").renew()
        before = dict(server.spec)
        assert await try_during(clock, elector(server, "a"), 1.0) == [True]
        assert server.spec == {**before, "renewTime": server.spec["renewTime"]}

    asyncio.run(scenario())


def test_a_leader_stops_when_the_lease_names_another(clock: Clock, server: LeaseServer) -> None:
    changes: list[bool] = []
    candidate = elector(server, "a", changes)

    async def scenario() -> None:
        await candidate.renew()
        server.held_by("b")
        assert await try_during(clock, candidate, 1.0) == [False]

    asyncio.run(scenario())
    assert changes == [True, False]


def test_a_leader_creates_a_lease_that_somebody_deleted(clock: Clock, server: LeaseServer) -> None:
    changes: list[bool] = []
    candidate = elector(server, "a", changes)

    async def scenario() -> None:
        await candidate.renew()
        server.lease = None
        assert await try_during(clock, candidate, RETRY_S) == [True]

    asyncio.run(scenario())
    assert changes == [True]
    assert server.spec["holderIdentity"] == "a"


def test_a_conflict_does_not_end_the_term_of_a_leader(clock: Clock, server: LeaseServer) -> None:
    """Its storage tasks would be cancelled because somebody labelled the Lease."""
    changes: list[bool] = []
    candidate = elector(server, "a", changes)

    async def touch() -> None:
        server.touch()

    async def scenario() -> None:
        await candidate.renew()
        server.before_write = touch
        tries = await try_during(clock, candidate, RETRY_S, RETRY_S, RETRY_S)
        assert tries == [True, True, False]  # it has not renewed for RENEW_S

    asyncio.run(scenario())
    assert changes == [True, False]


def test_of_candidates_that_try_at_the_same_moment_one_leads(
    clock: Clock, server: LeaseServer
) -> None:
    """The version decides, so the candidates need no jitter."""
    candidates = [elector(server, name) for name in "abc"]

    async def all_have_read() -> None:
        await asyncio.sleep(0)

    async def scenario() -> None:
        server.held_by("d")
        await asyncio.gather(*(one.renew() for one in candidates))
        clock.now += DURATION_S
        server.before_write = all_have_read
        await asyncio.gather(*(one.renew() for one in candidates))

    asyncio.run(scenario())
    (leader,) = [one for one in candidates if one.is_leader]
    assert server.spec["holderIdentity"] == leader.identity


def test_a_leader_whose_lease_lapsed_and_was_renewed_is_told_both(
    clock: Clock, server: LeaseServer
) -> None:
    """What was skipped while it was not the leader is done after that."""
    changes: list[bool] = []
    candidate = elector(server, "a", changes)

    async def scenario() -> None:
        await candidate.renew()
        clock.now += RENEW_S + 1
        assert not candidate.is_leader
        await candidate.renew()

    asyncio.run(scenario())
    assert changes == [True, False, True]
    assert candidate.is_leader


def test_a_leader_without_an_answer_leads_until_its_deadline(
    clock: Clock, server: LeaseServer
) -> None:
    changes: list[bool] = []
    candidate = elector(server, "a", changes)

    async def scenario() -> None:
        await candidate.renew()
        server.answers = False
        clock.now += RENEW_S - 1
        await candidate.renew()
        assert changes == [True]
        clock.now += 1
        await candidate.renew()

    asyncio.run(scenario())
    assert changes == [True, False]


def test_a_leader_whose_requests_hang_stops_at_its_deadline(
    clock: Clock, server: LeaseServer
) -> None:
    changes: list[tuple[bool, float]] = []
    candidate = elector(server, "a")
    candidate.changed = lambda leads: changes.append((leads, clock.now - 1000))

    async def scenario() -> None:
        running = asyncio.create_task(candidate.run())
        await asyncio.sleep(2.5)  # renewed at 0, 1 and 2 s
        server.hangs = True
        await asyncio.sleep(20)
        server.hangs = False
        await asyncio.sleep(RENEW_S)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run_in_skipped_time(clock, scenario())
    assert [leads for leads, _ in changes] == [True, False, True]
    assert changes[1][1] == pytest.approx(2 + RENEW_S)


def test_a_renewal_counts_from_when_it_began(clock: Clock, server: LeaseServer) -> None:
    """The server may have written the Lease at any moment since."""
    candidate = elector(server, "a")

    async def slow() -> None:
        clock.now += 2

    async def scenario() -> None:
        server.before_write = slow
        await candidate.renew()
        clock.now += RENEW_S - 2.5
        assert candidate.is_leader
        clock.now += 0.5
        assert not candidate.is_leader

    asyncio.run(scenario())
