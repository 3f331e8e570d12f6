"""Ticks, runs and parts: each slot is claimed once, each part done once, each run closed once.

The database's clock is real here. What has to lie in the past is put there by SQL, and a period of
decades keeps a test inside one slot.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.rows import dict_row

from store import runs
from store.agents import PostgresAgentStore
from store.batches import BatchSize, Stamp
from store.database import Database, Limits
from store.reap import reap
from store.retention import RetentionPolicy
from store.runs import Part, Run
from tests.store.stores import ended
from tests.waiting import wait_until

JOB = "reap"
DECADES = timedelta(days=10_000)
UNHEARD = timedelta(minutes=1)
UNFINISHED = timedelta(minutes=7)
SECOND = timedelta(seconds=1)
CALLERS = 8
# WHY: whoever is made to wait at a gate must not give up before it opens.
PATIENT = Limits(lock_timeout=timedelta(seconds=60), pool_size=CALLERS)

T = TypeVar("T")


@dataclass
class Records:
    """The worker's own tables, read and bent by plain SQL."""

    url: str
    database: Database
    connection: psycopg.Connection[dict[str, Any]]

    def rows(self, query: str, *params: object) -> list[dict[str, Any]]:
        return self.connection.execute(query.encode(), params).fetchall()

    def do(self, statement: str, *params: object) -> None:
        self.connection.execute(statement.encode(), params)

    def age(self, run: Run, by: timedelta) -> None:
        """Let the run and its parts have begun that much earlier."""
        ms = by // timedelta(milliseconds=1)
        self.do(
            "update maintenance.runs set started_at = started_at - %s where id = %s", ms, run.run_id
        )
        self.do(
            "update maintenance.run_parts set started_at = started_at - %s,"
            " finished_at = finished_at - %s where run_id = %s",
            ms,
            ms,
            run.run_id,
        )

    def parts(self, run: Run) -> dict[int, str]:
        """Each part's state; part 0 is the one who hands the others out."""
        found = self.rows("select * from maintenance.run_parts where run_id = %s", run.run_id)
        return {row["part"]: row["state"] for row in found}

    def state(self, run: Run) -> tuple[str, str | None]:
        """The run's state and its error."""
        (found,) = self.rows("select * from maintenance.runs where id = %s", run.run_id)
        return found["state"], found["error"]

    def journal(self, run: Run) -> dict[str, int]:
        """What the journal has of the run, by arm or arm/cause."""
        found = self.rows("select * from maintenance.journal where run_id = %s", run.run_id)
        counts: Counter[str] = Counter()
        for row in found:
            counts["/".join(filter(None, (row["arm"], row["cause"])))] += row["count"]
        return dict(counts)

    def race(self, gate: str, *acts: Callable[[Database], T]) -> list[T]:
        """Let every act run up against the gate, a statement that locks, then open it for all."""
        with (
            closing(Database(self.url, limits=PATIENT)) as crowd,
            psycopg.connect(self.url) as holder,
            ThreadPoolExecutor(len(acts)) as pool,
        ):
            holder.execute(gate.encode())
            running = [pool.submit(act, crowd) for act in acts]
            wait_until(
                lambda: self._waiting() == len(acts) or any(f.done() for f in running),
                "everybody at the gate",
            )
            assert not any(f.done() for f in running), "somebody passed the closed gate"
            holder.rollback()
            return [future.result() for future in running]

    def _waiting(self) -> int:
        return len(
            self.rows(
                "select 1 from pg_stat_activity where datname = current_database()"
                " and wait_event_type = 'Lock'"
            )
        )


@pytest.fixture
def records(plain_ledger: tuple[str, Database]) -> Iterator[Records]:
    url, database = plain_ledger
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        yield Records(url, database, connection)


def claim(database: Database, period: timedelta = DECADES, job: str = JOB) -> Run | None:
    return runs.claim_tick(database, job, period, uuid4())


def opened(records: Records, *, parts: int, begun: int = 0) -> Run:
    """A tick cut into that many parts, the first of which have begun."""
    run = claim(records.database)
    assert run is not None
    assert runs.cut(records.database, run, [f"scope {n}" for n in range(parts)], 1) == (parts, None)
    for part in range(1, begun + 1):
        assert runs.start_part(records.database, run.run_id, part) is not None
    return run


def by_hand(records: Records) -> Run:
    """A run by hand of which nothing is done yet."""
    return runs.open_run(records.database, JOB, "ada", (), uuid4())


def finish(
    database: Database, run: Run, part: int, state: runs.PartState = "succeeded", **more: Any
) -> Run | None:
    return runs.finish_part(database, Part(run.run_id, part, JOB, None), state, **more)


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


# Parts that never came back


@pytest.mark.parametrize(("short_of", "lost"), [(SECOND * 5, False), (-SECOND, True)])
def test_part_whose_message_must_have_expired_is_lost(
    records: Records, short_of: timedelta, lost: bool
) -> None:
    """Its run ends as failed, and says why."""
    run = opened(records, parts=2, begun=1)
    finish(records.database, run, 1)
    records.age(run, UNHEARD - short_of)

    closed = runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED)

    if lost:
        assert [(each.run_id, each.state) for each in closed] == [(run.run_id, "failed")]
        assert records.parts(run) == {0: "succeeded", 1: "succeeded", 2: "lost"}
        assert records.state(run) == ("failed", "1 parts never came back")
        assert records.journal(run) == {"run/failed": 1}
    else:
        assert closed == []
        assert records.parts(run) == {0: "succeeded", 1: "succeeded", 2: "queued"}
        assert records.state(run) == ("running", None)


@pytest.mark.parametrize(("short_of", "lost"), [(SECOND * 5, False), (-SECOND, True)])
def test_part_whose_process_must_be_gone_is_lost(
    records: Records, short_of: timedelta, lost: bool
) -> None:
    """One that is still within its budget is not, however long its message was under way."""
    run = opened(records, parts=1, begun=1)
    records.age(run, UNFINISHED - short_of)

    closed = runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED)

    assert [each.run_id for each in closed] == ([run.run_id] if lost else [])
    assert records.parts(run) == {0: "succeeded", 1: "lost" if lost else "running"}


def test_lost_part_is_not_begun_when_its_message_comes_after_all(records: Records) -> None:
    run = opened(records, parts=1)
    records.age(run, UNHEARD + SECOND)
    runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED)

    assert runs.start_part(records.database, run.run_id, 1) is None
    assert records.parts(run) == {0: "succeeded", 1: "lost"}


def test_part_that_ends_after_it_was_given_up_does_not_close_its_run_again(
    records: Records,
) -> None:
    run = opened(records, parts=1, begun=1)
    records.age(run, UNFINISHED + SECOND)
    runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED)

    assert finish(records.database, run, 1) is None

    assert records.state(run) == ("failed", "1 parts never came back")
    assert records.journal(run) == {"run/failed": 1}


def test_error_of_a_part_says_more_than_the_loss_of_another(records: Records) -> None:
    run = opened(records, parts=2, begun=1)
    finish(records.database, run, 1, "failed", error="a privilege is missing")
    records.age(run, UNHEARD + SECOND)

    (closed,) = runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED)

    assert (closed.state, closed.error) == ("failed", "a privilege is missing")


def test_another_jobs_parts_are_its_own_business(records: Records) -> None:
    run = opened(records, parts=1)
    records.age(run, UNFINISHED * 2)

    assert runs.lose_parts(records.database, "flip_stale_running", UNHEARD, UNFINISHED) == []

    assert records.parts(run) == {0: "succeeded", 1: "queued"}


def test_tick_whose_process_died_before_it_was_cut_is_no_success(records: Records) -> None:
    """Nobody looked for what was due: a worker that dies there each time must not look well."""
    run = claim(records.database)
    assert run is not None
    records.age(run, UNFINISHED + SECOND)

    closed = runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED)

    assert [each.state for each in closed] == ["failed"]
    assert records.journal(run) == {"run/failed": 1}


@pytest.mark.parametrize("begun", [claim, None], ids=["tick", "by hand"])
def test_run_that_is_still_looking_for_what_is_due_is_left_open(
    records: Records, begun: Callable[[Database], Run | None] | None
) -> None:
    """It has no parts yet; once it is closed, nobody would see how those parts ended."""
    run = by_hand(records) if begun is None else begun(records.database)
    assert run is not None
    records.age(run, UNHEARD * 2)

    assert runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED) == []

    assert records.state(run) == ("running", None)


def test_run_that_was_over_when_its_giver_up_died_is_closed_by_the_next(records: Records) -> None:
    """Killed between two transactions: the parts are lost already, and the run is still open."""
    run = opened(records, parts=1)
    records.do("update maintenance.run_parts set state = 'lost' where part = 1")
    records.age(run, UNFINISHED + SECOND)

    closed = runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED)

    assert [(each.run_id, each.state) for each in closed] == [(run.run_id, "failed")]


# By hand


def test_run_by_hand_does_its_parts_itself_and_nobody_takes_one_from_it(records: Records) -> None:
    run = by_hand(records)

    part = runs.begin_part(records.database, run, 1, ["a", "b"])

    assert part == Part(run.run_id, 1, JOB, ("a", "b"))
    assert runs.start_part(records.database, run.run_id, 1) is None
    assert runs.start_part(records.database, run.run_id, 0) is None
    assert runs.finish_part(records.database, part, "succeeded") is None
    over = runs.end_handing_out(records.database, run)
    assert over is not None
    assert (over.state, over.slot, over.requested_by) == ("succeeded", None, "ada")
    assert records.journal(run) == {"run/succeeded": 1}


def test_run_by_hand_may_take_for_hours_if_each_of_its_parts_does_not(records: Records) -> None:
    run = by_hand(records)
    for number in range(1, 4):
        records.age(run, UNFINISHED - SECOND * 5)
        assert runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED) == []
        part = runs.begin_part(records.database, run, number, ["a"])
        assert runs.finish_part(records.database, part, "succeeded") is None

    over = runs.end_handing_out(records.database, run)

    assert over is not None
    assert over.state == "succeeded"


def test_run_by_hand_whose_process_is_gone_is_given_up(records: Records) -> None:
    run = by_hand(records)
    runs.begin_part(records.database, run, 1, ["a"])
    records.age(run, UNFINISHED + SECOND)

    closed = runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED)

    assert [(each.run_id, each.state) for each in closed] == [(run.run_id, "failed")]
    assert records.parts(run) == {0: "lost", 1: "lost"}
    assert runs.end_handing_out(records.database, run) is None
    assert records.journal(run) == {"run/failed": 1}


def test_what_went_wrong_while_looking_for_work_is_the_runs_error(records: Records) -> None:
    run = by_hand(records)

    over = runs.end_handing_out(records.database, run, "a privilege is missing")

    assert over is not None
    assert (over.state, over.error) == ("failed", "a privilege is missing")


def test_two_ticks_that_give_up_the_same_parts_close_the_run_once(records: Records) -> None:
    run = opened(records, parts=2, begun=1)
    records.age(run, UNFINISHED + SECOND)

    closed = records.race(
        "select * from maintenance.run_parts for update",
        *[lambda database: runs.lose_parts(database, JOB, UNHEARD, UNFINISHED)] * 2,
    )

    assert [each.run_id for found in closed for each in found] == [run.run_id]
    assert records.journal(run) == {"run/failed": 1}


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
