"""Ticks, runs and parts: each slot is claimed once, each part done once, each run closed once."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.rows import dict_row

from store import runs
from store.agents import PostgresAgentStore
from store.batches import BatchSize, Stamp
from store.database import Database
from store.reap import reap
from store.retention import RetentionPolicy
from store.runs import Part, Run
from tests.store.run_records import CALLERS, DECADES, JOB, Records, claim, finish, opened
from tests.store.stores import ended


@pytest.fixture
def records(plain_ledger: tuple[str, Database]) -> Iterator[Records]:
    url, database = plain_ledger
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        yield Records(url, database, connection)


# Ticks


def test_of_many_beats_one_claims_the_tick(records: Records) -> None:
    """All stand at the schedule before the first may pass."""
    gate = "lock table maintenance.schedule in access exclusive mode"

    claimed = [run for run in records.race(gate, *[claim] * CALLERS) if run is not None]

    assert len(claimed) == 1
    assert [row["id"] for row in records.rows("select id from maintenance.runs")] == [
        claimed[0].run_id
    ]


def test_of_many_beats_one_claims_the_next_tick(records: Records) -> None:
    """The row of the job exists by then, which is another way through the statement."""
    assert claim(records.database) is not None
    records.do("update maintenance.schedule set last_slot = last_slot - period_ms")

    with_row = records.race("select * from maintenance.schedule for update", *[claim] * CALLERS)

    assert len([run for run in with_row if run is not None]) == 1


def test_slot_of_the_future_is_set_back_by_one(records: Records) -> None:
    """A clock that was a year ahead for one tick must not stop the job for a year."""
    assert claim(records.database) is not None
    records.do("update maintenance.schedule set last_slot = last_slot + 2 * period_ms")

    with_row = records.race("select * from maintenance.schedule for update", *[claim] * CALLERS)

    [run] = [run for run in with_row if run is not None]
    assert run.ahead_ms == 2 * (DECADES // timedelta(milliseconds=1))
    assert claim(records.database) is None


def test_slot_that_is_one_period_ahead_is_not_claimed_again(records: Records) -> None:
    """A clock that is set back for a moment; nor is anything ahead in an ordinary tick."""
    first = claim(records.database)
    assert first is not None
    assert first.ahead_ms == 0
    records.do("update maintenance.schedule set last_slot = last_slot + period_ms")

    assert claim(records.database) is None


def test_claimed_slot_is_not_claimed_again_and_the_next_one_is(records: Records) -> None:
    first = claim(records.database)
    assert first is not None
    assert claim(records.database) is None
    assert claim(records.database) is None

    records.do("update maintenance.schedule set last_slot = last_slot - period_ms")

    second = claim(records.database)
    assert second is not None
    assert second.slot == first.slot
    assert second.run_id != first.run_id
    assert claim(records.database) is None


def test_slots_are_multiples_of_the_period_and_each_is_claimed_once(records: Records) -> None:
    """Beats that never rest, over half a dozen slots of the real clock."""
    period = timedelta(milliseconds=100)
    claimed: list[Run] = []
    enough = threading.Event()

    def beat(database: Database) -> None:
        while not enough.is_set():
            run = claim(database, period)
            if run is not None:
                claimed.append(run)
            if len(claimed) >= 6:
                enough.set()

    with closing(Database(records.url)) as database, ThreadPoolExecutor(3) as pool:
        for beating in [pool.submit(beat, database) for _ in range(3)]:
            beating.result()

    slots = [run.slot for run in claimed if run.slot is not None]
    assert len(slots) == len(set(slots)) == len(claimed)
    for run in claimed:
        assert run.slot is not None
        assert run.slot % 100 == 0
        assert run.slot <= run.started_at < run.slot + 100


def test_each_job_has_slots_of_its_own(records: Records) -> None:
    assert claim(records.database, job="reap") is not None
    assert claim(records.database, job="flip_stale_running") is not None
    assert claim(records.database, job="reap") is None


def test_shorter_period_begins_at_once_and_the_longer_one_waits_for_its_slot(
    records: Records,
) -> None:
    """A policy with another period counts its slots on, so that no slot is done twice."""
    assert claim(records.database, DECADES) is not None

    shorter = claim(records.database, timedelta(days=1))
    assert shorter is not None
    assert shorter.slot is not None
    assert shorter.slot % 86_400_000 == 0

    assert claim(records.database, DECADES) is None
    (schedule,) = records.rows("select * from maintenance.schedule")
    assert (schedule["last_slot"], schedule["period_ms"]) == (shorter.slot, 86_400_000)


def test_slot_later_than_the_clock_is_left_alone(records: Records) -> None:
    """A database restored on a machine whose clock is behind catches up before it works."""
    assert claim(records.database) is not None
    records.do("update maintenance.schedule set last_slot = last_slot + period_ms")

    assert claim(records.database) is None


def test_tick_without_anything_to_do_is_a_success(records: Records) -> None:
    run = claim(records.database)
    assert run is not None

    count, over = runs.cut(records.database, run, [], 200)

    assert count == 0
    assert over is not None
    assert (over.state, over.report, over.error) == ("succeeded", {}, None)
    assert over.finished_at is not None
    assert over.finished_at >= over.started_at
    assert records.journal(run) == {"run/succeeded": 1}


# Parts


@pytest.mark.parametrize(
    ("scopes", "parts"),
    [(0, []), (1, [1]), (3, [3]), (4, [3, 1]), (7, [3, 3, 1])],
)
def test_run_is_cut_into_parts_of_a_few_scopes_and_none_is_left_out(
    records: Records, scopes: int, parts: list[int]
) -> None:
    run = claim(records.database)
    assert run is not None
    names = [f"scope {n}" for n in range(scopes)]

    count, over = runs.cut(records.database, run, names, 3)

    assert (count, over is None) == (len(parts), bool(parts))

    started = [runs.start_part(records.database, run.run_id, n + 1) for n in range(len(parts))]
    found = [part.scopes for part in started if part is not None and part.scopes is not None]
    assert [len(each) for each in found] == parts
    assert [name for each in found for name in each] == names
    assert {part.job for part in started if part is not None} <= {JOB}


def test_part_of_a_job_without_scopes_says_so(records: Records) -> None:
    run = claim(records.database)
    assert run is not None

    assert runs.cut(records.database, run, None, 200) == (1, None)

    assert runs.start_part(records.database, run.run_id, 1) == Part(run.run_id, 1, JOB, None)


def test_part_delivered_many_times_at_once_is_begun_once(records: Records) -> None:
    run = opened(records, parts=1)

    begun = records.race(
        "select * from maintenance.run_parts for update",
        *[lambda database: runs.start_part(database, run.run_id, 1)] * CALLERS,
    )

    assert [part for part in begun if part is not None] == [
        Part(run.run_id, 1, JOB, ("scope 0",)),
    ]


@pytest.mark.parametrize("outcome", [None, "succeeded", "failed"])
def test_redelivered_part_does_nothing(records: Records, outcome: runs.PartState | None) -> None:
    """Whether it is still being worked on or over, and how it went."""
    run = opened(records, parts=2, begun=1)
    if outcome is not None:
        finish(records.database, run, 1, outcome)
    before = records.rows("select * from maintenance.run_parts order by part")

    assert runs.start_part(records.database, run.run_id, 1) is None

    assert records.rows("select * from maintenance.run_parts order by part") == before


@pytest.mark.parametrize("part", [0, 2, -1, 2**31 - 1])
def test_part_that_does_not_exist_is_nobodys(records: Records, part: int) -> None:
    run = opened(records, parts=1)

    assert runs.start_part(records.database, run.run_id, part) is None
    assert runs.start_part(records.database, uuid4(), 1) is None
    assert records.parts(run) == {0: "succeeded", 1: "queued"}


# How a run ends


def test_run_ends_with_its_last_part(records: Records) -> None:
    run = opened(records, parts=3, begun=3)

    assert finish(records.database, run, 2) is None
    assert finish(records.database, run, 1) is None
    finished = finish(records.database, run, 3)

    assert finished is not None
    assert finished.run_id == run.run_id
    assert (finished.state, finished.error, finished.more) == ("succeeded", None, False)
    assert runs.list_runs(records.database, JOB, 1) == [finished]


def test_two_last_parts_that_end_at_once_close_the_run_once(records: Records) -> None:
    """Neither sees the other's end before its own; one of them must still know that it is last."""
    run = opened(records, parts=2, begun=2)

    ended_by = records.race(
        "select * from maintenance.runs for update",
        lambda database: finish(database, run, 1),
        lambda database: finish(database, run, 2),
    )

    assert [each.state for each in ended_by if each is not None] == ["succeeded"]
    assert records.journal(run) == {"run/succeeded": 1}
    assert set(records.parts(run).values()) == {"succeeded"}


def test_failed_part_fails_the_run_with_its_sentence(records: Records) -> None:
    run = opened(records, parts=2, begun=2)

    assert finish(records.database, run, 1, "failed", error="a privilege is missing") is None
    finished = finish(records.database, run, 2)

    assert finished is not None
    assert (finished.state, finished.error) == ("failed", "a privilege is missing")
    assert records.journal(run) == {"run/failed": 1}


def test_budget_that_ended_first_in_one_part_is_said_of_the_run(records: Records) -> None:
    run = opened(records, parts=2, begun=2)

    finish(records.database, run, 1, more=True)
    finished = finish(records.database, run, 2)

    assert finished is not None
    assert finished.more
    (listed,) = runs.list_runs(records.database, JOB, 1)
    assert listed.more


def test_report_is_what_the_journal_has(records: Records) -> None:
    """A real reap of three scopes, under the run's own name, in many batches."""
    store = PostgresAgentStore(records.database)
    scopes = ["a", "b", "c"]
    for scope in scopes:
        for number in range(7):
            store.put(ended(f"row-{number}", 60_000 + number, scope=scope))
    run = claim(records.database)
    assert run is not None
    runs.cut(records.database, run, scopes, 2)
    policy = RetentionPolicy(max_age_ms=60_003, keep=5)
    finished = None

    for number in (1, 2):
        part = runs.start_part(records.database, run.run_id, number)
        assert part is not None
        assert part.scopes is not None
        stamp = Stamp(ended().updated_at, run.run_id, batch=number * 1_000_000)
        policies = [(scope, policy) for scope in part.scopes]
        for _ in reap(records.database, policies, stamp, BatchSize(rows=2, scopes=2)):
            pass
        finished = runs.finish_part(records.database, part, "succeeded")

    assert finished is not None
    assert finished.report == {"max_age": 9}
    assert records.journal(run) == {"max_age": 9, "run/succeeded": 1}
    (gone,) = records.rows("select 21 - count(*) as rows from public.background_agents")
    assert sum(finished.report.values()) == gone["rows"]


# The list


def test_list_is_newest_first_of_one_job_or_of_all(records: Records) -> None:
    database = records.database
    made: list[UUID] = []
    for ago, job in enumerate(["reap", "reap", "flip_stale_running"]):
        run = runs.open_run(database, job, "ada", ("floors",), uuid4())
        records.do(
            "update maintenance.runs set started_at = started_at - %s where id = %s",
            ago * 1000,
            run.run_id,
        )
        made.append(run.run_id)

    assert [run.run_id for run in runs.list_runs(database, None, 10)] == made
    assert [run.run_id for run in runs.list_runs(database, "reap", 10)] == made[:2]
    assert [run.run_id for run in runs.list_runs(database, None, 1)] == made[:1]
    (newest,) = runs.list_runs(database, "flip_stale_running", 10)
    assert (newest.requested_by, newest.overrides, newest.slot) == ("ada", ("floors",), None)
