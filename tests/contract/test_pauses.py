"""A paused job: its ticks go on, do nothing, and count what they leave alone; on a real ledger."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.rows import dict_row

from config.policy import parse_policy
from config.settings import load_settings
from store import breakers, figures, outage, pauses, requests, runs
from store.agents import PostgresAgentStore
from store.batches import Stamp
from store.database import Database, Limits
from store.errors import StoreError, TimedOut
from store.pauses import Paused
from store.retention import RetentionPolicy
from tasks import reap
from tasks.context import Context, Planned, Tally
from tasks.paused import as_paused, count_paused
from tests.race.jobs import SteppedDatabase
from tests.store.stores import ended
from worker import frame, manual
from worker.context import Process

EACH = 3
SCOPES = ("s", "t", "u")
ALL = EACH * len(SCOPES)
POLICY = """
[schedule]
reap = "24h"
[defaults]
max_age = "1h"
stale_running_max_age = "15m"
"""


@pytest.fixture
def process(plain_ledger: tuple[str, Database]) -> Iterator[Process]:
    url, database = plain_ledger
    store = PostgresAgentStore(database)
    for scope in SCOPES:
        for number in range(EACH):
            store.put(ended(f"row {number}", scope=scope))
    given = {"MAINT_DATABASE_URL": url, "MAINT_SCOPES_PER_PART": "2", "MAINT_ROWS_PER_BATCH": "1"}
    process = Process(load_settings(given), parse_policy(POLICY, "policy.toml"))
    process.__dict__["database"] = SteppedDatabase(url, "public", Limits())
    yield process
    process.close()


def pause(process: Process, *scopes: str, job: str = "reap") -> None:
    assert pauses.place(process.database, [job], scopes or None, "restore under way", "ada@host")


def stepped(process: Process) -> SteppedDatabase:
    database = process.database
    assert isinstance(database, SteppedDatabase)
    return database


def query(process: Process, text: str) -> list[dict[str, Any]]:
    with psycopg.connect(
        stepped(process)._conninfo, autocommit=True, row_factory=dict_row
    ) as connection:
        return connection.execute(text.encode()).fetchall()


def left(process: Process) -> int:
    return len(query(process, "select from public.background_agents"))


def last(process: Process, job: str = "reap") -> runs.Run:
    [run] = runs.list_runs(process.database, job, 1)
    return run


def ticked(process: Process, job: str = "reap") -> runs.Run:
    for run_id, number in list(frame.tick(process, job)):
        frame.work(process, run_id, number)
    return last(process, job)


def by_hand(process: Process, *scopes: str, lifting: tuple[str, ...] = ()) -> runs.Run:
    return manual.by_hand(
        process,
        "reap",
        scopes or None,
        policy=process.policy,
        requested_by="bob",
        overrides=lifting,
    )


def test_tick_is_on_record_and_counts_what_it_leaves_alone(process: Process) -> None:
    """It succeeds, so that a job that a person has stopped is not one that does not run."""
    pause(process)

    run = ticked(process)

    assert (run.state, run.report, run.more) == ("succeeded", {"skipped/paused": ALL}, False)
    assert left(process) == ALL
    assert figures.last_completed(process.database, ["reap"]).keys() == {"reap"}


def test_other_scopes_are_worked_through(process: Process) -> None:
    pause(process, "t")

    run = ticked(process)

    assert run.report == {"max_age": ALL - EACH, "skipped/paused": EACH}
    assert left(process) == EACH


def test_next_run_after_a_resume_does_what_was_left(process: Process) -> None:
    pause(process)
    by_hand(process)
    assert pauses.lift(process.database, ["reap"], None, "bob")

    assert by_hand(process).report == {"max_age": ALL}


def test_what_was_done_before_a_pause_is_not_counted_as_left(process: Process) -> None:
    """Once per run, whatever its parts: the sum is what was due."""
    stepped(process).before("reap", lambda: pause(process))

    run = by_hand(process)

    assert run.report["max_age"] + run.report["skipped/paused"] == ALL
    assert left(process) == run.report["skipped/paused"] == ALL - run.report["max_age"]


def test_a_part_that_goes_on_counts_once(process: Process) -> None:
    pause(process, "s")
    stamp = Stamp(runs.open_run(process.database, "reap", "ada", (), uuid4()).started_at, uuid4())

    reports = [reap.run(process.context(stamp), ["s", "t"]) for _ in range(2)]

    assert [report.skipped for report in reports] == [EACH, 0]


def test_dry_run_is_what_the_run_comes_to(process: Process) -> None:
    pause(process, "t", "u")

    planned = manual.dry_run(process, "reap", None, process.policy)

    by_kind = {(p.scope, p.arm, p.cause): p.rows for p in planned}
    skipped = ("skipped", "paused")
    assert by_kind == {("s", "max_age", None): EACH, ("t", *skipped): EACH, ("u", *skipped): EACH}
    assert by_hand(process).report == {"max_age": EACH, "skipped/paused": 2 * EACH}


def test_dry_run_of_a_job_paused_everywhere(process: Process) -> None:
    pause(process)
    planned = manual.dry_run(process, "reap", ["s"], process.policy)
    assert [(p.arm, p.cause, p.rows) for p in planned] == [("skipped", "paused", EACH)]
    [planned_too] = manual.dry_run(process, "reap", ["s"], process.policy, though_paused=True)
    assert (planned_too.arm, planned_too.rows) == ("max_age", EACH)


def test_what_a_guard_or_a_hold_keeps_counts_as_paused_where_the_job_is() -> None:
    """The pause comes before: who looks is to learn what to lift first."""
    planned = [
        Planned("s", "max_age", None, 2, 50),
        Planned("s", "keep", None, 3, 70),
        Planned("s", "skipped", "fresh_flip", 4),
        Planned("t", "skipped", "fresh_flip", 5),
        Planned(None, "rejected", "abc", 6),
    ]
    assert as_paused(planned, Paused(scopes=frozenset("s"))) == [
        *planned[3:],
        Planned("s", "skipped", "paused", 9, 70),
    ]


def test_no_override_lifts_it(process: Process) -> None:
    pause(process, "s")
    assert by_hand(process, "s", lifting=("all",)).report == {"skipped/paused": EACH}


def test_breaker_of_a_paused_scope_stays_open(process: Process) -> None:
    """A run with the breakers lifted closes those of the scopes that it has worked through."""
    with process.database.transaction() as tx:
        stamped = Stamp(1).next_batch()
        breakers.trip(tx, "reap", stamped, {"s": 9, "t": 9}, {"s": 1, "t": 1})
    pause(process, "s")

    by_hand(process, lifting=("breakers",))

    found = query(process, "select scope from maintenance.breakers")
    assert [row["scope"] for row in found] == ["s"]


def test_scope_that_failed_stays_on_record_while_it_is_paused(process: Process) -> None:
    query(
        process,
        "insert into maintenance.failing_scopes (job, scope, run_id, error, since, last_at)"
        " select 'reap', s, gen_random_uuid(), 'odd', 1, 1 from unnest(array['s', 't']) s"
        " returning scope",
    )
    pause(process, "s")

    assert ticked(process).state == "succeeded"

    found = query(process, "select scope from maintenance.failing_scopes")
    assert [row["scope"] for row in found] == ["s"]


def test_request_obeys(process: Process) -> None:
    pause(process)
    asked = uuid4()
    requests.place(
        process.database, asked, "reap", None, policy=None, overrides=["all"], requested_by="bob"
    )

    for run_id, number in list(frame.take(process, asked)):
        frame.work(process, run_id, number)

    assert (last(process).state, last(process).report) == ("succeeded", {"skipped/paused": ALL})
    assert left(process) == ALL


def test_watch_goes_on(process: Process) -> None:
    """Or every flip would be held for an outage that was none, once the job is resumed."""
    pause(process, job="flip_stale_running")

    assert ticked(process, "flip_stale_running").state == "succeeded"

    with process.database.transaction(read_only=True) as tx:
        watched = outage.watched(tx, "flip_stale_running", runs.clock(tx))
    assert watched.ticked_at is not None


def test_releases_and_rejections_are_counted_by_scope(process: Process) -> None:
    """What names no scope is paused with everything, and with nothing less."""
    query(
        process,
        "insert into maintenance.session_releases"
        " (scope, session_id, handle, settled_at, run_id, queued_at, not_before)"
        " select s, 'gone', 'h', 0, gen_random_uuid(), 0, 0 from unnest(array['s', 't']) s"
        " returning id",
    )
    query(
        process,
        "insert into maintenance.harvest_rejections (scope, code)"
        " select s, 'abc' from unnest(array['s', 't', null]) s returning id",
    )
    for job in ("release_sessions", "drain_harvest"):
        pause(process, "s", job=job)

    assert ticked(process, "release_sessions").report == {"absent": 1, "skipped/paused": 1}
    assert ticked(process, "drain_harvest").report == {"rejected/abc": 2, "skipped/paused": 1}


def test_rejections_without_a_scope_are_paused_with_the_job(process: Process) -> None:
    query(
        process,
        "insert into maintenance.harvest_rejections (scope, code)"
        " select s, 'abc' from unnest(array['s', null]) s returning id",
    )
    pause(process, job="drain_harvest")

    assert ticked(process, "drain_harvest").report == {"skipped/paused": 2}


def test_housekeeping_does_nothing_and_says_so_by_its_run(process: Process) -> None:
    pause(process, job="housekeeping")
    run = ticked(process, "housekeeping")
    assert (run.state, run.report) == ("succeeded", {})


def test_store_function_refuses_rather_than_do_nothing_without_a_word(process: Process) -> None:
    pause(process, "s")
    store = PostgresAgentStore(process.database)
    with pytest.raises(StoreError, match="has paused"):
        store.reap("s", 2**60, RetentionPolicy(max_age_ms=1))
    assert left(process) == ALL


def test_count_that_takes_too_long_is_made_in_halves(process: Process) -> None:
    """And given up for a scope that takes too long by itself, which is left alone all the same."""
    tally = Tally(lambda: False)
    tally.paused = Paused(everywhere=True)
    stamp = Stamp(1, UUID(int=5))

    def slow(ctx: Context, scopes: Any) -> list[Planned]:
        if len(scopes) > 1 or scopes == ["t"]:
            raise TimedOut("too long")
        return [Planned(scope, "max_age", None, 7) for scope in scopes]

    count_paused(process.context(stamp), "reap", tally, list(SCOPES), slow)

    assert tally.of("skipped") == 14
    counted = query(process, "select scope, count from maintenance.journal order by scope")
    assert counted == [{"scope": "s", "count": 7}, {"scope": "u", "count": 7}]
