"""What the frame around every job promises, on a real ledger and without a broker.

A message names a part, and is delivered here by calling `work`: once, twice, late or never.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from config.policy import Arms, Policy, ScopePolicy, parse_policy
from config.settings import load_settings
from store import runs
from store.agents import PostgresAgentStore
from store.batches import Stamp
from store.database import Database
from store.errors import StoreError
from store.holds import place
from tasks import release_sessions
from tests.store.stores import ended
from tests.waiting import WITHIN_S, wait_until
from worker import frame, manual
from worker.context import Process

SECRET = "hunter2"
POLICY = parse_policy('[schedule]\nreap = "24h"\n[defaults]\nmax_age = "1h"\n', "policy.toml")
SCOPES = ["a", "b", "c", "d", "e"]
ROWS = 4


class Ledger:
    """Five scopes with four rows each that are due, and how many of them are left."""

    def __init__(self, url: str, database: Database) -> None:
        self.url = url
        store = PostgresAgentStore(database)
        for scope in SCOPES:
            for number in range(ROWS):
                store.put(ended(f"row {number}", scope=scope, session_id=f"talk {number}"))

    def select(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(query.encode()).fetchall()

    def do(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def gone(self) -> int:
        [(left,)] = self.select("select count(*) from public.background_agents")
        return len(SCOPES) * ROWS - int(left)

    def journal(self) -> dict[str, int]:
        """Everything that was counted, by arm or arm/cause."""
        rows = self.select(
            "select concat_ws('/', arm, cause), sum(count)::int from maintenance.journal group by 1"
        )
        return {str(kind): int(count) for kind, count in rows}


@pytest.fixture
def ledger(plain_ledger: tuple[str, Database]) -> Ledger:
    return Ledger(*plain_ledger)


MakeProcess = Callable[..., Process]


@pytest.fixture
def process_of(ledger: Ledger) -> Iterator[MakeProcess]:
    """Makes processes with small batches and parts; their connections are closed afterwards."""
    made: list[Process] = []

    def make(policy: Policy = POLICY, **settings: str) -> Process:
        given = {"DATABASE_URL": ledger.url, "SCOPES_PER_PART": "2", "ROWS_PER_BATCH": "2"}
        environ = {f"MAINT_{name}": value for name, value in {**given, **settings}.items()}
        made.append(Process(load_settings(environ), policy))
        return made[-1]

    yield make
    for process in made:
        process.close()


@pytest.fixture
def process(process_of: MakeProcess) -> Process:
    return process_of()


def last_run(process: Process, job: str = "reap") -> runs.Run:
    [run] = runs.list_runs(process.database, job, 1)
    return run


# Ticks and parts


def test_tick_is_cut_into_parts_and_the_last_of_them_ends_the_run(
    ledger: Ledger, process: Process
) -> None:
    """Five scopes, two to a part; whatever order the messages come in."""
    parts = [*frame.tick(process, "reap")]
    assert [number for _, number in parts] == [1, 2, 3]

    for run_id, number in reversed(parts):
        assert last_run(process).state == "running"
        frame.work(process, run_id, number)

    run = last_run(process)
    assert (run.state, run.report, run.more) == ("succeeded", {"max_age": 20}, False)
    assert ledger.gone() == 20
    assert ledger.journal() == {"max_age": 20, "run/succeeded": 1}


def test_second_tick_of_a_slot_finds_it_taken(process: Process, process_of: MakeProcess) -> None:
    """Of the same process or of another."""
    assert len([*frame.tick(process, "reap")]) == 3

    assert [*frame.tick(process, "reap")] == []
    assert [*frame.tick(process_of(), "reap")] == []
    assert len(runs.list_runs(process.database, "reap", 10)) == 1


def test_part_delivered_again_does_nothing_more(ledger: Ledger, process: Process) -> None:
    """Neither while the run goes on nor after it has ended."""
    parts = [*frame.tick(process, "reap")]
    for run_id, number in parts:
        frame.work(process, run_id, number)
        PostgresAgentStore(process.database).put(ended(f"new {number}", scope="a"))
        frame.work(process, run_id, number)

    frame.work(process, *parts[0])

    assert ledger.journal() == {"max_age": 20, "run/succeeded": 1}
    assert last_run(process).report == {"max_age": 20}


def test_part_of_a_run_that_nobody_opened_is_nobodys(ledger: Ledger, process: Process) -> None:
    frame.work(process, uuid4(), 1)

    assert ledger.journal() == {}
    assert ledger.gone() == 0


def test_tick_without_due_scopes_is_a_success_without_parts(
    ledger: Ledger, process_of: MakeProcess
) -> None:
    process = process_of(Policy.of(ScopePolicy(max_age=timedelta(days=36_500)), "test"))

    assert [*frame.tick(process, "reap")] == []

    assert (last_run(process).state, last_run(process).report) == ("succeeded", {})
    assert ledger.journal() == {"run/succeeded": 1}


def test_work_by_hand_leaves_alone_what_ticks_have_noted(ledger: Ledger, process: Process) -> None:
    """Its policy may be another. A dry run writes nothing at all."""
    other = Policy.of(ScopePolicy(max_age=timedelta(hours=2)), "flags")
    assert [*frame.tick(process, "reap")]
    noted = "select * from maintenance.scope_next_due, maintenance.scope_scans order by 1, 2"
    before = ledger.select(noted)
    assert before

    manual.dry_run(process, "reap", None, other)
    manual.by_hand(process, "reap", None, policy=other, requested_by="ada")

    assert ledger.gone() == 20
    assert ledger.select(noted) == before


def test_what_was_found_first_is_handed_out_although_the_rest_cannot_be_found(
    ledger: Ledger, process: Process
) -> None:
    """The look at all scopes fails; what is known to be due does not wait for it."""
    assert [*frame.tick(process, "reap")]
    ledger.do("update maintenance.schedule set last_slot = 0")
    ledger.do("update maintenance.scope_scans set finished_at = null, after_scope = null")
    ledger.do(
        "create function refuse_scans() returns trigger language plpgsql as"
        " $$ begin raise exception 'no'; end $$;"
        "create trigger refuse_scans before update of after_scope on maintenance.scope_scans"
        " for each row execute function refuse_scans()"
    )
    try:
        parts = [*frame.tick(process, "reap")]
    finally:
        ledger.do(
            "drop trigger refuse_scans on maintenance.scope_scans; drop function refuse_scans()"
        )
    for run_id, number in parts:
        frame.work(process, run_id, number)

    assert ledger.gone() == 20
    assert last_run(process).state == "failed"


def test_tick_of_a_job_without_scopes_is_one_part(ledger: Ledger, process: Process) -> None:
    manual.by_hand(process, "reap", None, policy=POLICY, requested_by="ada")
    ledger.do("update maintenance.session_releases set not_before = 0")

    [(run_id, number)] = frame.tick(process, "release_sessions")
    frame.work(process, run_id, number)

    assert last_run(process, "release_sessions").report == {"absent": 20}


def test_part_that_never_came_back_is_given_up_by_the_next_tick(
    ledger: Ledger, process: Process
) -> None:
    """Two parts were done; the message of the third was lost. The next tick does its work."""
    for run_id, number in [*frame.tick(process, "reap")][:2]:
        frame.work(process, run_id, number)
    a_day_ms = 24 * 3_600_000
    ledger.do(f"update maintenance.runs set started_at = started_at - {a_day_ms} - 1000")
    ledger.do(f"update maintenance.schedule set last_slot = last_slot - {a_day_ms}")

    for run_id, number in frame.tick(process, "reap"):
        frame.work(process, run_id, number)

    newest, lost = runs.list_runs(process.database, "reap", 10)
    assert (lost.state, lost.error) == ("failed", "1 parts never came back")
    assert (newest.state, newest.report) == ("succeeded", {"max_age": 4})
    assert ledger.gone() == 20


# The end of a process


def test_process_that_is_to_end_does_the_batch_in_hand_and_says_that_there_is_more(
    ledger: Ledger, process: Process
) -> None:
    parts = [*frame.tick(process, "reap")]
    process.stopping.set()

    for run_id, number in parts:
        frame.work(process, run_id, number)

    run = last_run(process)
    assert (run.state, run.more) == ("succeeded", True)
    assert ledger.gone() == run.report["max_age"] == ledger.journal()["max_age"]
    # Two rows a batch, one batch a part.
    assert ledger.gone() == 6


def test_run_by_hand_ends_early_as_well(ledger: Ledger, process: Process) -> None:
    process.stopping.set()

    run = manual.by_hand(process, "reap", None, policy=POLICY, requested_by="ada")

    assert (run.state, run.more, run.report) == ("succeeded", True, {"max_age": 2})
    assert ledger.gone() == 2


# By hand


def test_run_by_hand_is_on_record_with_who_asked_and_what_was_lifted(
    ledger: Ledger, process: Process
) -> None:
    run = manual.by_hand(
        process, "reap", None, policy=POLICY, requested_by="ada@ops", overrides=("floors",)
    )

    assert (run.state, run.slot, run.requested_by) == ("succeeded", None, "ada@ops")
    assert run.overrides == ("floors",)
    assert run.report == {"max_age": 20}
    assert last_run(process) == run
    assert ledger.journal() == {"max_age": 20, "run/succeeded": 1}


def test_run_by_hand_keeps_to_its_scopes_and_its_policy(ledger: Ledger, process: Process) -> None:
    policy = Policy.of(ScopePolicy(keep=3), "flags")

    run = manual.by_hand(process, "reap", ["b", "d"], policy=policy, requested_by="ada")

    assert run.report == {"keep": 2}
    left = dict(ledger.select("select scope, count(*) from public.background_agents group by 1"))
    assert left == {"a": 4, "b": 3, "c": 4, "d": 3, "e": 4}


def test_run_by_hand_and_tick_do_not_take_each_others_slot(process: Process) -> None:
    manual.by_hand(process, "reap", None, policy=POLICY, requested_by="ada")

    assert [*frame.tick(process, "reap")] == []
    assert last_run(process).requested_by == "schedule"


def test_dry_run_counts_and_leaves_no_trace(ledger: Ledger, process: Process) -> None:
    planned = manual.dry_run(process, "reap", None, POLICY)

    assert {(each.scope, each.arm, each.rows) for each in planned} == {
        (scope, "max_age", ROWS) for scope in SCOPES
    }
    assert ledger.gone() == 0
    assert ledger.select("select * from maintenance.runs") == []


def test_run_by_hand_ends_where_its_turn_is_too_short_for_what_it_passes_over(
    ledger: Ledger, process_of: MakeProcess
) -> None:
    """It would begin again at the first row for ever; the other scopes are done all the same."""
    process = process_of(SCOPES_PER_PART="1")
    process.settings = process.settings.model_copy(update={"job_budget": timedelta(0)})
    for number in range(2):
        place(process.database, "a", f"row {number}", "kept", "ada")
    found: list[runs.Run] = []
    running = threading.Thread(
        target=lambda: found.append(
            manual.by_hand(process, "reap", ["a", "b"], policy=POLICY, requested_by="ada")
        )
    )
    running.start()
    running.join(WITHIN_S)
    process.stopping.set()
    running.join(WITHIN_S)

    [run] = found
    assert (run.state, run.more) == ("succeeded", True)
    assert run.report == {"max_age": 4, "skipped/hold": 2}
    left = dict(ledger.select("select scope, count(*) from public.background_agents group by 1"))
    assert (left["a"], left.get("b", 0)) == (4, 0)


# What goes wrong


class Refusing(Policy):
    """A policy that has a defect of its own, and a secret in its error."""

    def for_scope(self, scope: str) -> ScopePolicy:
        raise ZeroDivisionError(f"password={SECRET}")


def test_defect_of_ours_fails_the_run_and_not_the_process(
    process_of: MakeProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """Its type is on record; its words, which may hold anything, are not."""
    process = process_of(Refusing(Arms(max_age=timedelta(hours=1))))

    assert [*frame.tick(process, "reap")] == []

    run = last_run(process)
    assert run.state == "failed"
    assert run.error is not None
    assert "ZeroDivisionError" in run.error
    assert SECRET not in run.error + caplog.text


def test_ledger_that_lost_a_table_fails_the_part_in_one_sentence(
    ledger: Ledger, process: Process
) -> None:
    """A tick that found work, and then the table was gone; the next one finds it again."""
    parts = [*frame.tick(process, "reap")]
    ledger.do("alter table public.background_agents rename to away")
    try:
        for run_id, number in parts:
            frame.work(process, run_id, number)
    finally:
        ledger.do("alter table public.away rename to background_agents")

    run = last_run(process)
    assert (run.state, run.report) == ("failed", {})
    assert run.error is not None
    assert "background_agents" in run.error
    assert "\n" not in run.error
    assert ledger.journal() == {"run/failed": 1}


def test_tick_that_cannot_look_for_work_is_a_failed_run(ledger: Ledger, process: Process) -> None:
    ledger.do("alter table public.background_agents rename to away")
    try:
        assert [*frame.tick(process, "reap")] == []
    finally:
        ledger.do("alter table public.away rename to background_agents")

    assert last_run(process).state == "failed"
    assert ledger.journal() == {"run/failed": 1}


def test_database_out_of_reach_is_a_line_in_the_log_and_no_more(
    process_of: MakeProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a tick nor a part raises; by hand, the one who asked is told."""
    process = process_of(DATABASE_URL=f"postgresql://sema:{SECRET}@127.0.0.1:1/sema")

    with caplog.at_level(logging.INFO, "sema_maintenance"):
        assert [*frame.tick(process, "reap")] == []
        frame.work(process, uuid4(), 1)

    assert [record.message for record in caplog.records] == ["tick_failed", "part_failed"]
    assert all(record.levelno == logging.ERROR for record in caplog.records)
    with pytest.raises(StoreError, match="does not answer") as raised:
        manual.by_hand(process, "reap", None, policy=POLICY, requested_by="ada")
    said = [str(raised.value), *(str(vars(record)) for record in caplog.records)]
    assert SECRET not in "".join(said)


def test_connections_of_a_parent_are_not_used_by_its_child(process: Process) -> None:
    """A child that forgets them opens its own; the parent's still work."""
    parent = process.database
    assert len([*frame.tick(process, "reap")]) == 3

    process.forget_connections()

    with closing(process.database) as child:
        assert child is not parent
        assert last_run(process).state == "running"
    with parent.transaction(read_only=True) as tx:
        assert tx.one("clock") is not None
    parent.close()


# Guards


def test_a_breaker_waits_for_the_person_who_lets_the_job_finish_that_scope(
    ledger: Ledger, process_of: MakeProcess
) -> None:
    """Runs by hand leave it open, unless they lift it; then it is gone, and history says who."""
    limited = parse_policy(
        '[defaults]\nmax_age = "1h"\n[guards]\nbreaker_rows = 3\n', "policy.toml"
    )
    process = process_of(limited)

    def reap(*overrides: str, scopes: list[str] | None = None) -> runs.Run:
        return manual.by_hand(
            process,
            "reap",
            scopes,
            policy=limited,
            requested_by="somebody",
            overrides=overrides,
        )

    assert reap().report == {"max_age": 15, "skipped/breaker": 5}
    assert reap().report == {"skipped/breaker": 5}

    cleared = reap("breakers", scopes=["b"])
    assert (cleared.state, cleared.report) == ("succeeded", {"max_age": 1, "breaker_cleared": 1})
    assert (cleared.requested_by, cleared.overrides) == ("somebody", ("breakers",))

    assert ledger.select("select scope from maintenance.breakers order by 1") == [
        (scope,) for scope in ("a", "c", "d", "e")
    ]
    assert reap().report == {"skipped/breaker": 4}


def test_releases_keep_the_pace_of_the_process(ledger: Ledger, process_of: MakeProcess) -> None:
    """After each batch they wait for as long as its entries ask for."""
    ledger.do(
        "insert into maintenance.session_releases"
        " (scope, session_id, handle, settled_at, run_id, queued_at, not_before)"
        " select 'a', 'gone ' || n, 'row', 0, gen_random_uuid(), 0, 0 from generate_series(1, 5) n"
    )
    paced: list[int] = []
    context = process_of(RELEASE_BATCH="2").context(Stamp(1_000))

    assert release_sessions.run(replace(context, pace=paced.append), None).absent == 5

    assert paced == [2, 2, 1]


def test_a_job_is_held_down_to_its_pace_and_a_stop_ends_the_wait(
    ledger: Ledger, process_of: MakeProcess
) -> None:
    """At a row a second not much comes after the first batches, but the stop."""
    process = process_of(MAX_ROWS_PER_SECOND="1")
    running = threading.Thread(
        target=manual.by_hand,
        args=(process, "reap", SCOPES),
        kwargs={"policy": POLICY, "requested_by": "somebody"},
    )
    running.start()
    wait_until(ledger.gone, "the first batch")
    process.stopping.set()
    running.join(WITHIN_S)

    assert not running.is_alive()
    assert ledger.gone() < len(SCOPES) * ROWS
    assert last_run(process).more


def test_forked_children_share_the_pace_of_one_worker(process_of: MakeProcess) -> None:
    process = process_of(MAX_ROWS_PER_SECOND="1000", WORKER_CONCURRENCY="4")
    assert process.pace.rows_per_second == 1000

    process.forget_connections()

    assert process.pace.rows_per_second == 250
