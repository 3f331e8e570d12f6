"""Every statement on the ledger uses the index that was made for it, and none reads it whole.

The parameters are those that the jobs themselves give; only the plans are kept.
"""

from collections.abc import Iterator
from contextlib import closing
from importlib import resources
from itertools import islice
from uuid import UUID, uuid4

import pytest

from store.agents import PostgresAgentStore
from store.batches import BatchSize, Stamp
from store.figures import live_agents
from store.flip_stale_running import due_for_flip, flip_stale_running, preview_flip
from store.overview import last_heard, scopes_without_rows
from store.reap import due_for_reap, preview_reap, reap
from store.reconcile_parked import due_for_reconcile, preview_reconcile, reconcile_parked
from store.release_sessions import Drain, preview_release, release_sessions
from store.retention import Milliseconds, RetentionPolicy
from tests.plan.conftest import MIX, NOW
from tests.plan.explaining import ExplainingDatabase

DRAINED_BATCHES = 3

KEY = "background_agents_pkey"
TERMINAL = "background_agents_terminal"
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
    "reap_unsettled": {UNSETTLED, KEY},
    "reap_keep_boundary": {TERMINAL, UNSETTLED},
    "due_reap": {TERMINAL, UNSETTLED},
    "preview_reap": {TERMINAL, UNSETTLED},
    "flip_stale_running": {RUNNING},
    "flip_stale_running_past_locks": {RUNNING, KEY},
    "flip_claimed_candidates": {RUNNING, CHECKPOINT},
    "flip_claimed": {RUNNING, KEY, CHECKPOINT},
    "due_flip_stale_running": {RUNNING, CHECKPOINT},
    "preview_flip_stale_running": {RUNNING},
    "reconcile_parked_candidates": {PARKED, CHECKPOINT},
    "reconcile_claims_candidates": {RUNNING, CHECKPOINT},
    "reconcile_parked": {KEY, CHECKPOINT},
    "lock_checkpoints": {CHECKPOINT},
    "present_checkpoints": {CHECKPOINT},
    "due_reconcile_parked": {PARKED, RUNNING, CHECKPOINT},
    "preview_reconcile_parked": {PARKED, RUNNING},
    "claim_releases": {"session_releases_pending"},
    "lock_sessions": {"agent_sessions_pkey"},
    "release_sessions": {SESSION, "session_releases_pkey", "agent_sessions_pkey"},
    "preview_release_sessions": {SESSION},
}
# Statements on the ledger that are not explained here, and why not.
WITHOUT = {
    "agent_put": "looks nothing up but its own key's conflict",
    "import_agents": "looks nothing up but its own keys' conflicts",
    "ledger_empty": "stops at the first row it meets",
    "count_terminal": "counts every row, and says so",
    "count_by_scope": "counts every row, and says so",
    "export_agents": "reads every row, and says so",
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

    row = store.get(first[0].handle, scopes[0])
    assert row is not None
    store.update(row.handle, row.scope, row, row.rev)
    store.delete(row.handle, row.scope, row.rev)
    store.list_by_session(scopes[0], row.owner)
    live_agents(database)
    last_heard(database, scopes[0], [summary.handle for summary in first[:50]])
    scopes_without_rows(database, [*scopes, "nobody"])


def run_jobs(database: ExplainingDatabase, scopes: list[str]) -> None:
    stamp = Stamp(NOW, UUID(int=1))
    size = BatchSize()
    for policy in (
        RetentionPolicy(max_age_ms=MIX["max_age_ms"]),
        RetentionPolicy(keep=900),
        RetentionPolicy(max_age_ms=MIX["max_age_ms"], keep=900),
    ):
        policies = [(scope, policy) for scope in scopes]
        assert [*reap(database, policies, stamp, size)]
        with database.transaction() as tx:
            assert due_for_reap(tx, policies, NOW)
            assert preview_reap(tx, policies, NOW)

    ages: list[tuple[str, Milliseconds]] = [
        (scope, MIX["stale_running_max_age_ms"]) for scope in scopes
    ]
    assert [*flip_stale_running(database, ages, stamp, size)]
    leases: list[tuple[str, Milliseconds | None]] = [
        (scope, MIX["stale_claim_max_age_ms"]) for scope in scopes
    ]
    assert [*reconcile_parked(database, leases, stamp, size)]
    # WHY only some: its claims are rolled back, so that it would go on for ever.
    drain = release_sessions(database, None, stamp, Drain(), uuid4, lambda: 0.0)
    assert [*islice(drain, DRAINED_BATCHES)]
    with database.transaction() as tx:
        assert due_for_flip(tx, ages, NOW)
        assert preview_flip(tx, ages, NOW)
        assert due_for_reconcile(tx, leases, NOW)
        assert preview_reconcile(tx, leases, NOW)
        assert preview_release(tx, None, NOW)


@pytest.mark.parametrize("statement", sorted(INDEXES))
def test_statement_uses_its_indexes_and_never_reads_the_ledger_whole(
    explained: ExplainingDatabase, statement: str
) -> None:
    wanted = INDEXES[statement]

    assert explained.plans[statement]
    for plan in explained.plans[statement]:
        assert not [t for t in plan.read_whole if t.startswith("background_agents")], str(plan)
        assert {i for i in plan.indexes if i.startswith("background_agents")} == {
            i for i in wanted if i.startswith("background_agents")
        }, str(plan)
        assert wanted <= plan.indexes, str(plan)


@pytest.mark.parametrize(
    ("statement", "index", "begins"),
    [
        ("reap", TERMINAL, "(ROW(settled_at, handle) > ROW("),
        ("reap_past_locks", TERMINAL, "(ROW(settled_at, handle) > ROW("),
        ("flip_stale_running", RUNNING, "(handle > "),
        ("flip_stale_running_past_locks", RUNNING, "(handle > "),
        ("flip_claimed_candidates", RUNNING, "(handle > "),
        ("reconcile_claims_candidates", RUNNING, "(handle > "),
        ("reconcile_parked_candidates", PARKED, "(ROW(COALESCE(parked_at, '0'::bigint), handle) >"),
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


def test_every_statement_on_the_ledger_is_explained_here() -> None:
    """A new one needs its index named, or a reason to do without."""
    on_the_ledger = {
        file.name.removesuffix(".sql")
        for file in resources.files("store").joinpath("sql").iterdir()
        if file.name.endswith(".sql")
        and "ledger.background_agents" in file.read_text(encoding="utf-8")
    }

    assert on_the_ledger - set(WITHOUT) == {
        statement
        for statement, indexes in INDEXES.items()
        if any(index.startswith("background_agents") for index in indexes)
        # These name the ledger in a fragment.
        and statement not in {"release_sessions", "preview_release_sessions"}
    }
