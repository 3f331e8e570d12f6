"""Every statement on the ledger uses the index that was made for it, and none reads it whole.

The parameters are those that the jobs themselves give; only the plans are kept.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from itertools import islice
from uuid import UUID, uuid4

import pytest

from store.agents import PostgresAgentStore
from store.applying import Application, Work
from store.batches import BatchSize, Stamp
from store.checkpoints import PostgresCheckpointStore
from store.diagnosis import Deployment, ledger
from store.diagnosis.finding import Examined
from store.due import (
    due_for_flip,
    due_for_reap,
    due_for_reconcile,
    live_scopes,
    running_scopes,
)
from store.figures import live_agents
from store.flip_stale_running import flip_stale_running, preview_flip
from store.guards import UNGUARDED, Guards
from store.named_flip import NamedFlip
from store.named_reap import NamedReap
from store.named_reconcile import NamedReconciliation
from store.named_releases import NamedOutbox, look_at_named
from store.needs import Needs
from store.next_due import Retention, due_by_now
from store.overview import last_heard, scopes_without_rows
from store.plans import PlannedRow, list_flip, list_reap, list_reconcile, list_releases
from store.reap import preview_reap, reap
from store.reconcile_parked import assert_checkpoints, preview_reconcile, reconcile_parked
from store.release_elsewhere import Answer, Key, release_elsewhere
from store.release_sessions import Drain, keep_sessions, preview_release, release_sessions
from store.releases import list_entries, rearm
from store.retention import Milliseconds, RetentionPolicy
from store.sessions import PostgresSessionStore
from store.sightings import sight_quiet
from store.standstill import standing
from tests.plan.conftest import DIGEST, MIX, NOW
from tests.plan.explaining import ExplainingDatabase

DRAINED_BATCHES = 3
BATCH = 2000

KEY = "background_agents_pkey"
TERMINAL = "background_agents_terminal"
SETTLED = "background_agents_settled"
UNSETTLED = "background_agents_unsettled"
RUNNING = "background_agents_running"
PARKED = "background_agents_parked"
SESSION = "background_agents_session"
CHECKPOINT = "checkpoints_pkey"

# The indexes of the ledger that each statement uses, those and no others; and such of other
# tables as it cannot do without.
INDEXES = {
    "agent_get": {KEY},
    "agent_update": {KEY},
    "agent_delete": {KEY},
    "agent_list": {KEY},
    "list_scopes": {KEY},
    "last_heard": {RUNNING},
    "scopes_without_rows": {KEY},
    "count_live": {RUNNING, PARKED},
    "reap": {TERMINAL},
    "reap_past_locks": {TERMINAL, KEY},
    "reap_next": {TERMINAL},
    "reap_unsettled_next": {UNSETTLED},
    "reap_guarded": {TERMINAL},
    "reap_unsettled_guarded": {UNSETTLED},
    "reap_implausible": {TERMINAL, UNSETTLED},
    "live_writers": {RUNNING},
    "scope_sizes": {KEY},
    "run_changes": {"journal_by_run"},
    "reap_unsettled": {UNSETTLED, KEY},
    "list_reap": {TERMINAL, UNSETTLED},
    "reap_named": {KEY},
    "reap_planned": {KEY},
    "reap_keep_boundary": {TERMINAL, UNSETTLED},
    "oldest_settled": {TERMINAL, UNSETTLED},
    "implausible_scopes": {TERMINAL, UNSETTLED},
    "settled_scopes": {SETTLED},
    "scopes_come_due": {"scope_next_due_time"},
    "scopes_after": {KEY},
    "running_scopes": {RUNNING},
    "live_scopes": {RUNNING, PARKED},
    "preview_reap": {TERMINAL, UNSETTLED},
    "flip_stale_running": {RUNNING},
    "flip_stale_running_past_locks": {RUNNING, KEY},
    "flip_candidates": {RUNNING, CHECKPOINT},
    "flip_judged": {RUNNING, KEY, CHECKPOINT},
    "count_silent": {RUNNING},
    "sight_quiet": {RUNNING},
    "prune_flipped": {KEY, "sightings_flipped"},
    "checkpoints_gone": {PARKED},
    "due_flip_stale_running": {RUNNING, CHECKPOINT},
    "preview_flip_stale_running": {RUNNING},
    "list_flip_stale_running": {RUNNING},
    "flip_named": {KEY, CHECKPOINT},
    "reconcile_parked_candidates": {PARKED, CHECKPOINT},
    "reconcile_claims_candidates": {RUNNING, CHECKPOINT},
    "reconcile_parked": {KEY, CHECKPOINT},
    "expire_checkpoints": {CHECKPOINT},
    "checkpoint_get": {CHECKPOINT},
    "checkpoint_settle": {CHECKPOINT},
    "session_get": {"agent_sessions_pkey"},
    "session_delete": {"agent_sessions_pkey"},
    "hold_on_session": {SESSION, "session_releases_session"},
    "claims_in_time": {"session_releases_pkey"},
    "lock_checkpoints": {CHECKPOINT},
    "present_checkpoints": {CHECKPOINT},
    "due_reconcile_parked": {PARKED, RUNNING, CHECKPOINT},
    "preview_reconcile_parked": {PARKED, RUNNING},
    "list_reconcile_parked": {PARKED, RUNNING},
    "reconcile_named": {KEY, CHECKPOINT},
    "claim_releases": {"session_releases_pending"},
    "lock_sessions": {"agent_sessions_pkey"},
    "release_sessions": {SESSION, "session_releases_pkey", "agent_sessions_pkey"},
    "preview_release_sessions": {SESSION},
    "list_release_sessions": {SESSION},
    "named_releases": {SESSION, "session_releases_pkey"},
    "claim_named_releases": {"session_releases_pkey"},
    "judge_releases": {SESSION, "session_releases_pkey", "agent_sessions_pkey"},
    "complete_releases": {"session_releases_pkey"},
    "keep_releases": {"session_releases_pending"},
    "show_releases": {"session_releases_pkey"},
    "rearm_releases": {"session_releases_aside", "agent_sessions_pkey"},
    "doctor_unsettled": {UNSETTLED},
    "doctor_times": {SETTLED, RUNNING},
    "doctor_outbox": {"session_releases_aside"},
}
# Both are by scope and handle, and the rows that are named are running ones.
AS_GOOD_AS = {("flip_named", RUNNING): KEY}
# Statements on the ledger that are not explained here, and why not.
WITHOUT = {
    "agent_put": "looks nothing up but its own key's conflict",
    "import_agents": "looks nothing up but its own keys' conflicts",
    "import_checkpoints": "looks nothing up but its own keys' conflicts",
    "import_sessions": "looks nothing up but its own keys' conflicts",
    "checkpoint_put": "looks nothing up but its own key's conflict",
    "session_put": "looks nothing up but its own key's conflict",
    "restore_row": "looks nothing up but its entry's and its own key",
    "restore_transcript": "locks the one row of a key",
    "probe_checkpoint_locks": "reads nothing",
    "export_checkpoints": "reads every row, and says so",
    "export_sessions": "reads every row, and says so",
    "ledger_empty": "stops at the first row it meets",
    "doctor_statuses": "stops at the first rows it meets",
    "probe_table_locks": "reads nothing",
    "count_terminal": "counts every row, and says so",
    "count_by_scope": "counts every row, and says so",
    "export_agents": "reads every row, and says so",
    "writer_heard": "reads every running row, as live_writers does",
    "row_transcript": "finds one transcript by its key, and counts the rows that name it",
}


@pytest.fixture(scope="session")
def explained(big_ledger: str) -> Iterator[ExplainingDatabase]:
    """The database after every job has run on it, its plans noted and its rows as they were."""
    with closing(ExplainingDatabase(big_ledger)) as database:
        run_everything(database)
        yield database


def run_everything(database: ExplainingDatabase) -> None:
    store = PostgresAgentStore(database)
    scopes = store.list_scopes()
    first = store.list_by_scope(scopes[0])
    run_jobs(database, scopes)
    # WHY by hand: nobody holds a row here, so no job has to go past one.
    with database.transaction() as tx:
        for statement in ("reap", "flip_stale_running"):
            tx.rows(f"{statement}_past_locks", database.params[statement])
        for statement in ("reap", "reap_unsettled"):
            params = database.params[statement]
            tx.rows(f"{statement}_next", params)
            nowhere = {"upto_ats": params["last_ats"], "upto_handles": params["after_handles"]}
            judged = {**params, "fresh_flips": True, "rows_held": True}
            tx.rows(f"{statement}_guarded", {**judged, **nowhere})
            tx.rows(statement, judged)

    row = store.get(first[0].handle, scopes[0])
    assert row is not None
    store.update(row.handle, row.scope, row, row.rev)
    store.delete(row.handle, row.scope, row.rev)
    store.list_by_session(scopes[0], row.owner)
    run_stores(database, scopes[0], row.session_id or "nobody's")
    live_agents(database)
    run_probes(database)
    last_heard(database, scopes[0], [summary.handle for summary in first[:50]])
    scopes_without_rows(database, [*scopes, "nobody"])


def run_stores(database: ExplainingDatabase, scope: str, session_id: str) -> None:
    checkpoints, sessions = PostgresCheckpointStore(database), PostgresSessionStore(database)
    checkpoints.get("nobody's", scope)
    checkpoints.settle("nobody's", scope, "resolved", NOW)
    sessions.get(session_id, scope)
    sessions.delete(session_id, scope, NOW)


def run_jobs(database: ExplainingDatabase, scopes: list[str]) -> None:
    stamp = Stamp(NOW, UUID(int=1))
    size = BatchSize()
    for policy in (
        RetentionPolicy(max_age_ms=MIX["max_age_ms"]),
        RetentionPolicy(keep=900),
        RetentionPolicy(max_age_ms=MIX["max_age_ms"], keep=900),
    ):
        policies = [(scope, policy) for scope in scopes]
        for guards in (UNGUARDED, Guards(breaker_share=0.9)):
            assert [*reap(database, policies, stamp, size, guards=guards)]
            with database.transaction() as tx:
                assert due_for_reap(tx, policies, NOW, guards)
                assert preview_reap(tx, policies, NOW, guards)

    ages: list[tuple[str, Milliseconds]] = [
        (scope, MIX["stale_running_max_age_ms"]) for scope in scopes
    ]
    for guards in (UNGUARDED, Guards(sightings=False, breaker_share=0.9), Guards()):
        assert [*flip_stale_running(database, ages, stamp, size, guards=guards)]
    assert sight_quiet(database, NOW, Guards())
    leases: list[tuple[str, Milliseconds | None]] = [
        (scope, MIX["stale_claim_max_age_ms"]) for scope in scopes
    ]
    for guards in (UNGUARDED, Guards()):
        assert [*reconcile_parked(database, leases, stamp, size, guards=guards)]
    run_releases(database, stamp)
    run_plans(database, scopes, stamp, ages, leases)
    only_one_chunk_of_all = iter((False, True))
    retention = Retention(lambda some: [(scope, policy) for scope in some], DIGEST)
    stop = only_one_chunk_of_all.__next__
    assert [*due_by_now(database, retention, NOW, Guards(), stop)]
    assert [*running_scopes(database)]
    assert [*live_scopes(database)]
    with database.transaction() as tx:
        assert due_for_flip(tx, ages, NOW)
        assert preview_flip(tx, ages, NOW)
        assert standing(tx, ages, NOW, Guards()).silent
        assert_checkpoints(tx, Guards())
        assert due_for_reconcile(tx, leases, NOW)
        assert preview_reconcile(tx, leases, NOW)
        assert preview_release(tx, None, NOW)
    with database.transaction() as tx, tx._connection.cursor() as cursor:
        # WHY in one transaction: nothing is kept.
        cursor.execute(FLIPPED)
        over = {"before": NOW, "batch_max": 500, "passed_over": 0}
        assert tx.do("prune_flipped", over) == 500


def run_probes(database: ExplainingDatabase) -> None:
    """What the doctor asks of the ledger; it finds the few unsettled rows, and all in time."""
    deployment = Deployment(Needs(), {}, time.time)
    with database.transaction(read_only=True) as tx:
        examined = Examined(tx, "public", deployment)
        for probe in (ledger.unsettled, ledger.times, ledger.outbox):
            assert [*probe(examined)]


# Records of flips whose rows are gone: more of them than one batch takes.
FLIPPED = b"""
insert into maintenance.sightings
    (scope, handle, verdict, rev, updated_at, writer_id, first_seen, last_seen)
select 's' || n % 50, 'gone ' || n, 'flipped', 1, 1, 'w', 1, n from generate_series(1, 3000) n
"""


def run_plans(
    database: ExplainingDatabase,
    scopes: list[str],
    stamp: Stamp,
    ages: Sequence[tuple[str, Milliseconds]],
    leases: Sequence[tuple[str, Milliseconds | None]],
) -> None:
    """Plan each job that can be, and apply as many rows as a batch has."""
    policies = [(s, RetentionPolicy(max_age_ms=MIX["max_age_ms"], keep=900)) for s in scopes]
    for guards in (UNGUARDED, Guards(sightings=False, breaker_share=0.9)):
        with database.transaction() as tx:
            found = preview_reap(tx, policies, NOW, guards)
            rows = first(BATCH, list_reap(tx, policies, NOW, guards, found))
        work: Work = NamedReap.of(policies, stamp, guards, timedelta(0), None)
        apply(database, work, rows, stamp)
        with database.transaction() as tx:
            silent = preview_flip(tx, ages, NOW, guards)
            rows = first(BATCH, list_flip(tx, ages, NOW, guards, {}, silent))
        apply(database, NamedFlip.of(database, ages, stamp, guards, {}), rows, stamp)
        with database.transaction() as tx:
            rows = first(BATCH, list_reconcile(tx, leases, NOW, guards))
        apply(database, NamedReconciliation.of(leases, stamp, guards), rows, stamp)
    with database.transaction() as tx:
        rows = first(200, list_releases(tx, None, NOW, "postgres"))
        assert look_at_named(tx, rows, NOW, "postgres")
        assert NamedOutbox(rows, stamp).claim(tx, Drain(), 200, uuid4())


def first(count: int, rows: Generator[PlannedRow, None, None]) -> list[PlannedRow]:
    with closing(rows):
        return [*islice(rows, count)]


def apply(
    database: ExplainingDatabase, work: Work, rows: Sequence[PlannedRow], stamp: Stamp
) -> None:
    assert rows
    [done] = Application(database, work, rows, stamp, BatchSize(BATCH, scopes=BATCH), {}).batches()
    assert done.rows


class Deleted:
    """Another system, which has everything and deletes it."""

    at_a_time = 4

    def release(self, keys: Sequence[Key]) -> list[Answer]:
        return [Answer("released")] * len(keys)

    def close(self) -> None:
        pass


def run_releases(database: ExplainingDatabase, stamp: Stamp) -> None:
    # WHY only some: the plans of the others are the same.
    drain = release_sessions(database, None, stamp, Drain(), uuid4, lambda: 0.0)
    assert [*islice(drain, DRAINED_BATCHES)]
    elsewhere = release_elsewhere(database, Deleted(), None, stamp, Drain(), uuid4, lambda: 0.0)
    assert [*islice(elsewhere, DRAINED_BATCHES)]
    assert [*islice(keep_sessions(database, None, stamp, 200), DRAINED_BATCHES)]
    assert list_entries(database, None, None, 100)
    assert [*islice(rearm(database, "suspect", None, None, stamp), 1)]


@pytest.mark.parametrize("statement", sorted(INDEXES))
def test_statement_uses_its_indexes_and_never_reads_the_ledger_whole(
    explained: ExplainingDatabase, statement: str
) -> None:
    wanted = INDEXES[statement]

    assert explained.plans[statement]
    for plan in explained.plans[statement]:
        assert not [t for t in plan.read_whole if t.startswith("background_agents")], str(plan)
        used = {AS_GOOD_AS.get((statement, index), index) for index in plan.indexes}
        assert {i for i in used if i.startswith("background_agents")} == {
            i for i in wanted if i.startswith("background_agents")
        }, str(plan)
        assert wanted <= used, str(plan)


@pytest.mark.parametrize(
    ("statement", "index", "begins"),
    [
        ("reap", TERMINAL, "(ROW(settled_at, handle) > ROW("),
        ("reap_past_locks", TERMINAL, "(ROW(settled_at, handle) > ROW("),
        ("flip_stale_running", RUNNING, "(handle > "),
        ("flip_stale_running_past_locks", RUNNING, "(handle > "),
        ("flip_candidates", RUNNING, "(handle > "),
        ("reconcile_claims_candidates", RUNNING, "(handle > "),
        ("reconcile_parked_candidates", PARKED, "(ROW(COALESCE(parked_at, '0'::bigint), handle) >"),
        ("claim_releases", "session_releases_pending", "(ROW(not_before, id) > ROW("),
        ("keep_releases", "session_releases_pending", "(ROW(not_before, id) > ROW("),
    ],
)
def test_batch_begins_in_the_index_after_the_last_key_of_the_one_before(
    explained: ExplainingDatabase, statement: str, index: str, begins: str
) -> None:
    """As part of the index condition: rows that were dealt with are not even looked at."""
    for plan in explained.plans[statement]:
        scans = plan.scans_of(index)
        assert scans
        assert all(begins in scan["Index Cond"] for scan in scans), str(plan)


@pytest.mark.parametrize("statement", ["reap", "reap_past_locks", "reap_unsettled"])
def test_undo_that_is_off_computes_nothing(explained: ExplainingDatabase, statement: str) -> None:
    """No document is made of any row, and none is asked whether it should be."""

    def planned(undo_ms: int | None) -> str:
        params = {**explained.params[statement], "undo_ms": undo_ms}
        with explained.transaction() as tx:
            plan = tx._connection.execute(
                b"explain (verbose) " + explained.statements[statement], params
            )
            return "\n".join(str(row["QUERY PLAN"]) for row in plan)

    assert "to_jsonb" not in planned(None)
    assert "to_jsonb" in planned(86_400_000)
