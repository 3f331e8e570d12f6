"""What the worker asks of its own tables follows what is there to do, not what there ever was."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from store import actions, figures, holds, undo
from store.batches import Stamp
from store.database import Database
from store.errors import NoSuchHold, StoreError
from store.harvest import drain_harvest, preview_harvest, prune_harvest
from store.housekeeping import prune, roll_up
from store.pauses import await_claims, paused_among
from tests.conftest import Servers
from tests.ledgers import VERSIONS
from tests.plan.explaining import ExplainingDatabase

NOW = 1_796_029_200_000
DAY = timedelta(days=1)
MS = timedelta(milliseconds=1)
# A year of runs that are rolled up, a day of others; rejections of which few are not counted yet,
# and few are old enough to go.
HISTORY = f"""
update maintenance.schema_migrations set applied_at = 0;
insert into maintenance.runs
    (id, job, requested_by, state, started_at, finished_at, rolled_up_at)
select gen_random_uuid(), (array['reap', 'flip_stale_running', 'drain_harvest'])[1 + n % 3],
    'schedule', (array['succeeded', 'partial', 'failed'])[1 + n % 7 % 3],
    {NOW} - n * 60000::bigint, {NOW} - n * 60000::bigint + 500, case when n > 3000 then 1 end
from generate_series(1, 100000) n;
insert into maintenance.runs (id, job, requested_by, state, started_at)
select gen_random_uuid(), 'reap', 'ada', 'running', {NOW} from generate_series(1, 20);
insert into maintenance.journal (run_id, batch, at, job, scope, arm, cause, count)
select id, 1, finished_at, job, 's', 'run', 'succeeded', 1 from maintenance.runs
where rolled_up_at is null and finished_at is not null;
insert into maintenance.harvest_codes (code, admitted_at)
select 'c' || n, 1 from generate_series(1, 64) n;
insert into maintenance.harvest_rejections (scope, code, detail, occurred_at, counted_at)
select 's' || n % 50, 'c' || n % 80, repeat('x', 100), {NOW},
    case when n % 200 > 0 then {NOW} - (n % 1000) * 90000 end
from generate_series(1, 100000) n;
insert into maintenance.requests (id, job, requested_by, requested_at, state)
select gen_random_uuid(), 'reap', 'ada', {NOW} - n * 60000::bigint, 'taken'
from generate_series(1, 30000) n;
insert into maintenance.sightings
    (scope, handle, verdict, rev, updated_at, writer_id, first_seen, last_seen)
select 's' || n % 50, 'h' || n, 'stale_running', 1, 1, 'w', 1, {NOW} - n * 6000
from generate_series(1, 30000) n;
insert into maintenance.holds
    (scope, handle, reason, placed_by, placed_at, ends_at, released_by, released_at)
select 's' || n % 50, case when n % 100 > 0 then 'h' || n end, 'why', 'ada', 1,
    case when n % 3 = 0 then {NOW} * 2 - n end, case when n % 10 > 0 then 'bob' end,
    case when n % 10 > 0 then {NOW} - n * 60000::bigint end
from generate_series(1, 60000) n;
insert into maintenance.holds (scope, reason, placed_by, placed_at, ends_at)
select 's' || n % 50, 'why', 'ada', 1, {NOW} - n * 60000::bigint from generate_series(1, 3000) n;
insert into maintenance.actions (at, actor, action)
select {NOW} - n * 60000::bigint, 'ada', 'pause' from generate_series(1, 30000) n;
insert into maintenance.pauses (job, scope, reason, paused_by, paused_at)
select (array['reap', 'drain_harvest', 'housekeeping'])[1 + n % 3], 's' || n, '', 'ada', 1
from generate_series(1, 3000) n;
insert into maintenance.session_releases
    (scope, session_id, handle, settled_at, run_id, queued_at, not_before)
select 's' || n % 50, 't' || n, 'h', 1, gen_random_uuid(), 1, {2**60} + n
from generate_series(1, 30000) n;
insert into maintenance.session_releases
    (scope, session_id, handle, settled_at, run_id, queued_at, not_before, state, record,
    restorable_until)
select 's' || n % 50, case when n % 3 > 0 then 'u' || n end, 'k' || n, 1, gen_random_uuid(), 1,
    {2**60} + n, case when n % 3 > 0 then 'pending' else 'kept' end,
    jsonb_build_object('scope', 's' || n % 50, 'handle', 'k' || n, 'rev', 1),
    case when n % 100 = 0 then {NOW} * 2 - n else {NOW} - n * 60000::bigint end
from generate_series(1, 30000) n;
"""
INDEXES = {
    "claim_harvest": {"harvest_rejections_uncounted"},
    "next_harvest": {"harvest_rejections_uncounted"},
    "count_harvest": {"harvest_rejections_uncounted"},
    "count_harvest_waiting": {"harvest_rejections_uncounted"},
    "prune_harvest": {"harvest_rejections_counted", "harvest_rejections_pkey"},
    "prune_harvest_next": {"harvest_rejections_counted"},
    "preview_harvest": {"harvest_rejections_uncounted", "harvest_rejections_counted"},
    "roll_up_runs": {"runs_not_rolled_up", "runs_pkey"},
    "roll_up_journal": {"journal_pkey", "runs_pkey"},
    "prune_runs": {"runs_finished", "runs_pkey", "journal_by_run"},
    "prune_requests": {"requests_over", "requests_pkey"},
    "prune_sightings": {"sightings_last_seen", "sightings_pkey"},
    "prune_holds": {"holds_released", "holds_pkey"},
    "prune_holds_over": {"holds_ending", "holds_pkey"},
    "prune_actions": {"actions_at", "actions_pkey"},
    "held_scopes": {"holds_on_scope", "holds_in_scope"},
    "hold_on_row": {"holds_on_scope", "holds_on_row"},
    "any_hold": set(),
    "hold_get": {"holds_pkey"},
    "hold_release": {"holds_pkey"},
    "list_holds": set(),
    "journal_totals": {"runs_not_rolled_up"},
    "last_completed": {"runs_completed"},
    "paused_among": {"pauses_pkey"},
    "paused_counted": {"journal_by_run"},
    "list_actions": {"actions_at"},
    "claims_held": {"session_releases_pending"},
    "count_releases": {"session_releases_pending", "session_releases_aside"},
    "newest_runs": {"runs_by_job"},
    "operator_failures": {"runs_finished", "requests_not_taken"},
    "restorable": {"session_releases_window", "session_releases_restorable"},
    "count_restorable": {"session_releases_window"},
    "restore_find": {"session_releases_restorable"},
    "restore_entry": {"session_releases_pkey"},
    "restore_columns": {"session_releases_pkey"},
    "restore_done": {"session_releases_pkey"},
    "erase_held": {"holds_in_scope", "session_releases_restorable"},
    "erase_kept": {"session_releases_restorable", "session_releases_pkey"},
    "prune_kept": {"session_releases_window", "session_releases_pkey"},
}
BIG = {
    "runs",
    "harvest_rejections",
    "requests",
    "sightings",
    "holds",
    "actions",
    "session_releases",
}


@pytest.fixture(scope="module", params=VERSIONS, ids=lambda v: f"pg{v}")
def explained(servers: Servers, request: pytest.FixtureRequest) -> Iterator[ExplainingDatabase]:
    """The database after everything was asked of it once, its plans noted."""
    url, _ = servers.ledger(request.param, "plain")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(HISTORY.encode())
        for table in sorted(BIG | {"journal", "harvest_codes", "pauses"}):
            connection.execute(f"vacuum analyze maintenance.{table}".encode())
    with closing(ExplainingDatabase(url)) as database:
        ask_everything(database)
        yield database


def ask_everything(database: Database) -> None:
    stamp = Stamp(NOW, UUID(int=1))
    # WHY only the first batch of each: nothing is kept, so that it would be found for ever.
    for batches in (
        drain_harvest(database, None, stamp, 500),
        prune_harvest(database, None, stamp, DAY, 500),
        roll_up(database, NOW, DAY, 500),
    ):
        assert next(iter(batches))
    old = {"before": NOW - DAY // MS, "batch_max": 50, "passed_over": 0}
    params = {"now": NOW, "before": NOW, "batch_max": 500, "after_id": 0, "passed_over": 0}
    with database.transaction() as tx:
        tx.rows("roll_up_journal", params)
        of_all: dict[str, Any] = {"scopes": None, "paused": [], "after_id": 0}
        assert tx.rows("next_harvest", of_all)
        assert tx.rows("prune_harvest_next", {**of_all, **old, "after_at": 0})
    for statement in (
        *("prune_runs", "prune_requests", "prune_sightings", "prune_holds", "prune_holds_over"),
        "prune_actions",
    ):
        with database.transaction() as tx:
            assert tx.do(statement, old)
    with database.transaction() as tx:
        assert holds.in_force(tx, ["s0", "s10", "nobody"]).rows
        assert holds.held_by(tx, "s10", "h10")
        assert holds.over_entries(tx)["anything_held"]
    [newest, *_] = holds.list_holds(database, "s0", 10, over_too=False)
    assert holds.list_holds(database, None, 10, over_too=True)
    assert holds.release(database, newest.id, "bob").released_by == "bob"
    with pytest.raises(NoSuchHold):
        holds.release(database, 1, "bob")
    with database.transaction(read_only=True) as tx:
        assert preview_harvest(tx, None, NOW, DAY)
    with database.transaction() as tx:
        assert paused_among(tx, "reap", ["s3"]).scopes == {"s3"}
        assert tx.rows("paused_counted", {"run_id": UUID(int=1), "job": "reap"}) == []
    assert len(actions.newest(database, None, 20)) == 20
    ask_undo(database)
    assert await_claims(database, None) is None
    assert figures.releases(database)["pending"]
    assert figures.journal_totals(database)
    assert figures.last_completed(database, ["reap", "flip_stale_running", "drain_harvest"])
    assert figures.newest_runs(database, ["reap", "flip_stale_running"], 5)
    figures.uncounted_rejections(database)
    figures.operator_failures(database, ["reap"], timedelta(hours=1))
    assert [*prune(database, 0, DAY, 500)] == []


def ask_undo(database: Database) -> None:
    assert {kept.scope for kept in undo.restorable(database, "s0", 100)} == {"s0"}
    assert len(undo.restorable(database, None, 100)) == 100
    assert undo.count_restorable(database) == 300
    # WHY this one: it has no transcript to be looked for; and it lacks what a row must have.
    with pytest.raises(StoreError, match="null value in column"):
        undo.restore(database, "s0", "k300", "ada")
    with database.transaction() as tx:
        assert tx.do("restore_done", {"id": 30_300}) == 1
        over = {"before": NOW - DAY // MS, "batch_max": 50, "passed_over": 0}
        assert tx.do("prune_kept", over) == 50
        assert tx.rows("erase_held", {"scope": "s0", "limit": 5, "held_at": None})
        [erased] = tx.rows("erase_kept", {"scope": "s0", "limit": 50, "at": None})
    assert erased["rows"] == 50


@pytest.mark.parametrize("statement", sorted(INDEXES))
def test_statement_uses_its_indexes_and_reads_no_history(
    explained: ExplainingDatabase, statement: str
) -> None:
    assert explained.plans[statement]
    for plan in explained.plans[statement]:
        assert not plan.read_whole & BIG, str(plan)
        assert INDEXES[statement] <= plan.indexes, str(plan)
