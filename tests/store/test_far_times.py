"""A row may name any time that a bigint holds: what one of them says stops no dry run."""

import psycopg
import pytest

from store.database import Database
from store.flip_stale_running import preview_flip
from store.reap import preview_reap
from store.reconcile_parked import preview_reconcile
from store.records import BIGINT_MAX, BIGINT_MIN
from store.retention import RetentionPolicy
from tests.store.stores import NOW

_TIMES = (BIGINT_MIN, 0, BIGINT_MAX)
# What decides about each row, and how old its scope's policy lets anything get.
_TOKENS = ("missing", "over", "expired", "given")
_AGES = (0, 1000, BIGINT_MAX)


@pytest.fixture
def database(ledger: tuple[str, Database]) -> Database:
    """A ledger with rows of every kind and every time, and checkpoints likewise."""
    url, database = ledger
    schema = database.statements.ledger_schema
    with psycopg.connect(url) as connection:
        connection.execute(
            f"insert into {schema}.checkpoints (scope, token, status, expires_at, updated_at,"
            " content) select 's' || t, k.token || c, k.status, c, c, '{}'"
            " from unnest(%(times)s::bigint[]) t, unnest(%(times)s::bigint[]) c, (values"
            " ('over', 'pending'), ('expired', 'expired'), ('given', 'resolved')"
            ") as k (token, status)".encode(),
            {"times": [*_TIMES]},
        )
        connection.execute(
            f"insert into {schema}.background_agents (scope, handle, rev, status, owner,"
            " session_scoped, writer_id, spawned_at, updated_at, settled_at, parked_at,"
            " parked_checkpoint_token, park_claim_id, content)"
            " select 's' || t, k || status || c, 1, status, 'owner', false, 'host-a', 0, t,"
            " case when status = 'failed' then t end,"
            " case when status = 'parked' then t end,"
            " case when status <> 'failed' then k || c end,"
            " case when status = 'running' then 'claim' end, '{}'"
            " from unnest(%(times)s::bigint[]) t, unnest(%(times)s::bigint[]) c,"
            " unnest(%(tokens)s::text[]) k, unnest(array['running', 'parked', 'failed']) status"
            "".encode(),
            {"times": [*_TIMES], "tokens": [*_TOKENS]},
        )
    return database


@pytest.mark.parametrize("age", _AGES)
def test_no_time_of_a_row_or_checkpoint_stops_a_dry_run(database: Database, age: int) -> None:
    scopes = [f"s{time}" for time in _TIMES]
    policy = RetentionPolicy(max_age_ms=age, keep=1)
    with database.transaction(read_only=True, snapshot=True) as tx:
        backlogs = [
            *preview_flip(tx, [(scope, age) for scope in scopes], NOW).values(),
            *preview_reconcile(tx, [(scope, age) for scope in scopes], NOW).values(),
            *preview_reap(tx, [(scope, policy) for scope in scopes], NOW).values(),
        ]

    assert backlogs
    assert all(0 <= backlog.oldest_ms <= BIGINT_MAX for backlog in backlogs)
    assert all(isinstance(backlog.oldest_ms, int) for backlog in backlogs)
