"""The three jobs, each three ways: as the worker does it, in one statement, and one CAS per row.

All three have the same effect, outbox and journal rows included. The one statement is the limit: it
holds every lock to its end, cannot be stopped, and for parked rows is not even safe. One CAS per
row with a commit each is what a store without sets does.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import psycopg

from bench.ledger import NOW_MS, Ledger
from store.batches import BatchSize, Stamp
from store.flip_stale_running import flip_stale_running
from store.reap import reap
from store.reconcile_parked import FAILURES, reconcile_parked
from store.records import STALE_RUNNING_REAP_ATTRIBUTION
from store.retention import RetentionPolicy, before
from worker.sample.cycle import MIX, Mix

RUN = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class Job:
    """One job's three ways. Each gives the number of rows it changed."""

    name: str
    mix: Mix
    ours: Callable[[Ledger, BatchSize], int]
    limit: str
    per_row: Callable[[psycopg.Connection, int], int]


def _scopes(ledger: Ledger) -> list[str]:
    with ledger.database.transaction(read_only=True) as tx:
        return [row["scope"] for row in tx.rows("list_scopes")]


def _reap_ours(ledger: Ledger, size: BatchSize) -> int:
    policy = RetentionPolicy(max_age_ms=MIX["max_age_ms"])
    policies = [(scope, policy) for scope in _scopes(ledger)]
    return sum(done.rows for done in reap(ledger.database, policies, Stamp(NOW_MS), size))


def _flip_ours(ledger: Ledger, size: BatchSize) -> int:
    ages = [(scope, MIX["stale_running_max_age_ms"]) for scope in _scopes(ledger)]
    return sum(done.rows for done in flip_stale_running(ledger.database, ages, Stamp(NOW_MS), size))


def _reconcile_ours(ledger: Ledger, size: BatchSize) -> int:
    leases = [(scope, MIX["stale_claim_max_age_ms"]) for scope in _scopes(ledger)]
    return sum(done.rows for done in reconcile_parked(ledger.database, leases, Stamp(NOW_MS), size))


_QUEUED = f"""
    insert into maintenance.session_releases
        (scope, session_id, handle, settled_at, run_id, queued_at, not_before)
    select scope, session_id, handle, settled_at, '{RUN}', {NOW_MS}, {NOW_MS} + 600000
    from gone where session_id is not null
"""


def _journaled(job: str, arm: str, effect: str, cause: str = "null::text") -> str:
    return f"""
    insert into maintenance.journal (run_id, batch, at, job, scope, arm, cause, count)
    select '{RUN}', 1, {NOW_MS}, '{job}', scope, {arm}, {cause}, count(*)
    from {effect} group by 5, 6, 7
"""


_SETTLED_BEFORE = before(NOW_MS, MIX["max_age_ms"])
_SILENT_SINCE = before(NOW_MS, MIX["stale_running_max_age_ms"])
_LEASED_SINCE = before(NOW_MS, MIX["stale_claim_max_age_ms"])
_TERMINAL = "a.status in ('completed', 'failed', 'killed')"

REAP_LIMIT = f"""
with gone as (
    delete from public.background_agents a
    where {_TERMINAL} and a.settled_at < {_SETTLED_BEFORE}
    returning a.scope, a.handle, a.session_id, a.settled_at
), queued as ({_QUEUED}), journaled as ({_journaled("reap", "'max_age'", "gone")})
select count(*) from gone
"""

_ATTRIBUTED = """a.content
    || case when a.content ->> 'error' is null
        then jsonb_build_object('error', %(attribution)s::text) else '{}'::jsonb end
    || case when a.content ->> 'summary' is null
        then jsonb_build_object('summary', %(attribution)s::text) else '{}'::jsonb end"""

FLIP_LIMIT = f"""
with flipped as (
    update public.background_agents a
    set status = 'failed', settled_at = {NOW_MS}, updated_at = {NOW_MS}, rev = a.rev + 1,
        parked_checkpoint_token = null, park_claim_id = null, content = {_ATTRIBUTED}
    where a.status = 'running' and a.updated_at < {_SILENT_SINCE}
        and (a.park_claim_id is null or a.parked_checkpoint_token is null)
    returning a.scope
), journaled as ({_journaled("flip_stale_running", "'flipped'", "flipped")})
select count(*) from flipped
"""

_VERDICT = f"""case
    when a.status = 'parked' and c.token is null then 'checkpoint_missing'
    when a.status = 'parked' and (c.status = 'expired'
        or (c.status = 'pending' and c.expires_at <= {NOW_MS})) then 'checkpoint_expired'
    when a.updated_at >= {_LEASED_SINCE} then null
    when a.status = 'parked' and c.status = 'resolved'
        then case when c.updated_at < {_LEASED_SINCE} then 'stranded' end
    when a.park_claim_id is null or a.parked_checkpoint_token is null then null
    when c.status = 'pending' and c.expires_at > {NOW_MS} then 'stale_claim'
    when a.status = 'running' and c.token is null then 'checkpoint_missing'
    when a.status = 'running' and c.status in ('pending', 'expired') then 'checkpoint_expired'
end"""

_FOLLOWED = f"""
    status = case when j.verdict = 'stale_claim' then 'parked' else 'failed' end,
    settled_at = case when j.verdict = 'stale_claim' then a.settled_at else {NOW_MS} end,
    updated_at = {NOW_MS}, rev = a.rev + 1, park_claim_id = null,
    parked_checkpoint_token
        = case when j.verdict = 'stale_claim' then a.parked_checkpoint_token end,
    writer_epoch = case when j.verdict = 'stale_claim'
        then coalesce(a.writer_epoch, 0) + 1 else a.writer_epoch end,
    content = case when j.verdict = 'stale_claim' or a.content ->> 'error' is not null
        then a.content
        else a.content || jsonb_build_object('error', %(errors)s::jsonb -> j.verdict) end
"""

RECONCILE_LIMIT = f"""
with judged as (
    select a.scope, a.handle, a.parked_checkpoint_token as token, v.verdict
    from public.background_agents a
    left join public.checkpoints c on c.scope = a.scope and c.token = a.parked_checkpoint_token
    cross join lateral (select {_VERDICT} as verdict) v
    where a.status in ('parked', 'running') and v.verdict is not null
), expired as (
    update public.checkpoints c set status = 'expired', updated_at = {NOW_MS}
    from judged j
    where j.verdict = 'checkpoint_expired' and c.scope = j.scope and c.token = j.token
        and c.status = 'pending'
), changed as (
    update public.background_agents a set {_FOLLOWED}
    from judged j where a.scope = j.scope and a.handle = j.handle
    returning a.scope, j.verdict,
        case when j.verdict = 'stale_claim' then 'rolled_back' else 'failed' end as arm
), journaled as ({_journaled("reconcile_parked", "arm", "changed", "verdict")})
select count(*) from changed
"""

PARAMS = {"attribution": STALE_RUNNING_REAP_ATTRIBUTION, "errors": json.dumps(FAILURES)}


def _keys(connection: psycopg.Connection, query: str, rows: int) -> list[tuple[str, str, int]]:
    return connection.execute(f"{query} limit {rows}").fetchall()


_ONE_JOURNAL = (
    "insert into maintenance.journal (run_id, batch, at, job, scope, arm, cause, count)"
    f" values ('{RUN}', 1, {NOW_MS}, %s, %s, %s, %s, 1)"
)


def _reap_per_row(connection: psycopg.Connection, rows: int) -> int:
    query = (
        "select a.scope, a.handle, a.rev from public.background_agents a"
        f" where {_TERMINAL} and a.settled_at < {_SETTLED_BEFORE}"
    )
    done = 0
    for scope, handle, rev in _keys(connection, query, rows):
        with connection.transaction():
            gone = connection.execute(
                "delete from public.background_agents where scope = %s and handle = %s and rev = %s"
                " returning session_id, settled_at",
                (scope, handle, rev),
            ).fetchone()
            if gone is None:
                continue
            connection.execute(
                "insert into maintenance.session_releases"
                " (scope, session_id, handle, settled_at, run_id, queued_at, not_before)"
                f" values (%s, %s, %s, %s, '{RUN}', {NOW_MS}, {NOW_MS} + 600000)",
                (scope, gone[0], handle, gone[1]),
            )
            connection.execute(_ONE_JOURNAL, ("reap", scope, "max_age", None))
            done += 1
    return done


def _flip_per_row(connection: psycopg.Connection, rows: int) -> int:
    query = (
        "select a.scope, a.handle, a.rev from public.background_agents a"
        f" where a.status = 'running' and a.updated_at < {_SILENT_SINCE}"
        " and a.park_claim_id is null"
    )
    statement = (
        f"update public.background_agents a set status = 'failed', settled_at = {NOW_MS},"
        f" updated_at = {NOW_MS}, rev = a.rev + 1, content = {_ATTRIBUTED}"
        " where a.scope = %(scope)s and a.handle = %(handle)s and a.rev = %(rev)s"
    )
    done = 0
    for scope, handle, rev in _keys(connection, query, rows):
        with connection.transaction():
            key = {"scope": scope, "handle": handle, "rev": rev}
            done += connection.execute(statement, PARAMS | key).rowcount
            connection.execute(_ONE_JOURNAL, ("flip_stale_running", scope, "flipped", None))
    return done


def _reconcile_per_row(connection: psycopg.Connection, rows: int) -> int:
    query = (
        "select a.scope, a.handle, a.rev, a.parked_checkpoint_token, v.verdict"
        " from public.background_agents a left join public.checkpoints c"
        " on c.scope = a.scope and c.token = a.parked_checkpoint_token"
        f" cross join lateral (select {_VERDICT} as verdict) v"
        f" where a.status in ('parked', 'running') and v.verdict is not null limit {rows}"
    )
    statement = (
        f"update public.background_agents a set {_FOLLOWED}"
        " from (select %(verdict)s::text as verdict) j"
        " where a.scope = %(scope)s and a.handle = %(handle)s and a.rev = %(rev)s"
    )
    done = 0
    for scope, handle, rev, token, verdict in connection.execute(query).fetchall():
        with connection.transaction():
            connection.execute(
                "select status from public.checkpoints where scope = %s and token = %s for update",
                (scope, token),
            )
            if verdict == "checkpoint_expired":
                connection.execute(
                    f"update public.checkpoints set status = 'expired', updated_at = {NOW_MS}"
                    " where scope = %s and token = %s and status = 'pending'",
                    (scope, token),
                )
            key = {"scope": scope, "handle": handle, "rev": rev, "verdict": verdict}
            done += connection.execute(statement, PARAMS | key).rowcount
            arm = "rolled_back" if verdict == "stale_claim" else "failed"
            connection.execute(_ONE_JOURNAL, ("reconcile_parked", scope, arm, verdict))
    return done


JOBS = (
    Job("reap", {"terminal_share": 1.0}, _reap_ours, REAP_LIMIT, _reap_per_row),
    Job("flip_stale_running", {"terminal_share": 0.0}, _flip_ours, FLIP_LIMIT, _flip_per_row),
    Job(
        "reconcile_parked",
        {"terminal_share": 0.0, "approval_share": 1.0},
        _reconcile_ours,
        RECONCILE_LIMIT,
        _reconcile_per_row,
    ),
)


@dataclass(frozen=True)
class Speed:
    """Rows per second of each way, in one round."""

    ours: float
    limit: float
    per_row: float


def measure(job: Job, ledger: Ledger, size: BatchSize, per_row_rows: int) -> Speed:
    """One round: the three ways one after the other, each on the ledger as it was loaded."""
    ledger.put_back()
    began = time.perf_counter()
    changed = job.ours(ledger, size)
    ours = changed / (time.perf_counter() - began)

    ledger.put_back()
    with psycopg.connect(ledger.url) as connection:
        began = time.perf_counter()
        row = connection.execute(job.limit, PARAMS).fetchone()
        connection.commit()
        took = time.perf_counter() - began
    if row is None or row[0] != changed:
        raise SystemExit(f"{job.name}: {changed} rows in batches, {row} in one statement")
    limit = changed / took

    ledger.put_back()
    with psycopg.connect(ledger.url, autocommit=True) as connection:
        began = time.perf_counter()
        done = job.per_row(connection, per_row_rows)
        per_row = done / (time.perf_counter() - began)
    return Speed(ours, limit, per_row)
