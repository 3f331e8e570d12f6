"""What a tick costs that finds nothing, over a ledger of many scopes with one finished row each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

import psycopg

from bench.ledger import NOW_MS
from config.policy import parse_policy
from config.settings import load_settings
from store.batches import Stamp
from store.due import all_scopes, due_for_flip, due_for_reconcile
from store.migrate import create_ledger, migrate
from tasks import flip_stale_running, reap, reconcile_parked
from tasks.context import Context
from tests.servers import postgres_15_bin, throwaway_postgres
from worker.context import Process

POLICY = parse_policy(
    '[defaults]\nmax_age = "30d"\nkeep = 1000\n'
    'stale_running_max_age = "15m"\nstale_claim_max_age = "15m"\n',
    "policy.toml",
)
_LIVE = 1_000
_MINUTES = 60_000
_DAY = 24 * 60 * _MINUTES
_FILL = f"""
    insert into background_agents (scope, handle, rev, status, owner, session_scoped, writer_id,
        spawned_at, updated_at, settled_at)
    select 'tenant-' || n, 'agent', 1, 'completed', 'o', false, 'w', 1, 1,
        {NOW_MS} - {_DAY} - (n * 7919::bigint) % (20 * {_DAY}::bigint)
    from generate_series(1, %(scopes)s) n;
    insert into background_agents (scope, handle, rev, status, owner, session_scoped, writer_id,
        spawned_at, updated_at, parked_checkpoint_token)
    select 'tenant-' || n, 'live-' || s, 1, s, 'o', false, 'w', 1, {NOW_MS} + {_DAY}, 'token'
    from generate_series(1, {_LIVE}) n, unnest(array['running', 'parked']) s;
    insert into checkpoints (scope, token, status)
    select 'tenant-' || n, 'token', 'pending' from generate_series(1, {_LIVE}) n;
"""


@dataclass(frozen=True)
class Tick:
    """Seconds: of an idle tick, and of a look at every scope instead."""

    job: str
    idle: float
    everywhere: float


def _flip_everywhere(ctx: Context) -> Iterator[list[str]]:
    for scopes in all_scopes(ctx.database):
        with ctx.database.transaction(read_only=True) as tx:
            yield due_for_flip(tx, ctx.stale_ages(scopes), ctx.stamp.now)


def _reconcile_everywhere(ctx: Context) -> Iterator[list[str]]:
    for scopes in all_scopes(ctx.database):
        with ctx.database.transaction(read_only=True) as tx:
            yield due_for_reconcile(tx, ctx.leases(scopes), ctx.stamp.now)


Find = Callable[[Context], Iterator[list[str]]]
_JOBS: tuple[tuple[str, Find, Find], ...] = (
    ("reap", reap.due, reap.due_anywhere),
    ("flip_stale_running", flip_stale_running.due, _flip_everywhere),
    ("reconcile_parked", reconcile_parked.due, _reconcile_everywhere),
)


def measure_ticks(version: str, scopes: int, rounds: int) -> Iterator[Tick]:
    """Medians over the rounds, of each job in turn."""
    options = {"fsync": "on", "autovacuum": "off", "shared_buffers": "512MB", "max_wal_size": "4GB"}
    with throwaway_postgres(postgres_15_bin() if version == "15" else None, options) as url:
        process = Process(load_settings({"MAINT_DATABASE_URL": url}), POLICY)
        create_ledger(process.database)
        migrate(process.database)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(_FILL.replace("%(scopes)s", str(scopes)).encode())
            connection.execute("vacuum analyze")
        for job, idle, everywhere in _JOBS:
            # WHY once before: the first tick looks at all scopes, and the cache is warm then.
            _seconds(idle, process.context(Stamp(NOW_MS)))
            later = [NOW_MS + 10 * _MINUTES * (n + 1) // rounds for n in range(rounds)]
            yield Tick(
                job,
                median(_seconds(idle, process.context(Stamp(now))) for now in later),
                median(_seconds(everywhere, process.context(Stamp(now))) for now in later),
            )
        process.close()


def _seconds(find: Find, context: Context) -> float:
    began = time.perf_counter()
    found = [scope for scopes in find(context) for scope in scopes]
    if found:
        raise SystemExit(f"{len(found)} scopes are due in a tick that was to be idle")
    return time.perf_counter() - began
