"""The jobs over more scopes than a batch takes at once, side by side with the reference."""

import itertools
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg.rows import dict_row

from store.agents import PostgresAgentStore, record_of, record_params
from store.batches import BatchSize, Done, Stamp
from store.checkpoints import PostgresCheckpointStore
from store.contract import Checkpoint, reconcile_parked_agents
from store.database import Database
from store.errors import StoreError
from store.flip_stale_running import flip_stale_running
from store.in_memory import InMemoryAgentStore, InMemoryCheckpointStore
from store.reap import reap
from store.reconcile_parked import reconcile_parked
from store.records import COLUMNS, STATUSES, AgentRecord
from store.retention import RetentionPolicy
from tests.store.stores import NOW, SCOPE, SMALL, agent, checkpoint

SCOPES = [f"tenant-{n}" for n in range(5)]
EMPTY = "tenant-without-rows"
TOKENS = ("pending", "due", "resolved")

Ledger = tuple[str, Database]


def shapes(scope: str) -> Iterator[AgentRecord]:
    """Rows of every status over a few moments: with and without an end, a token, a claim."""
    combinations = itertools.product(STATUSES, range(3), (None, "c"), (None, *TOKENS))
    for place, (status, moment, claim, token) in enumerate(combinations):
        dated = place * 7 // 3 % 2 == 0
        ended = status not in {"running", "parked"}
        yield agent(
            f"{place * 17 % 120:03}",
            scope=scope,
            status=status,
            updated_at=NOW - 10 * moment,
            settled_at=NOW - 10 * moment if dated and ended else None,
            session_id=f"s-{place}" if place % 3 else None,
            parked_at=NOW - place % 5 if dated else None,
            park_claim_id=claim,
            parked_checkpoint_token=token,
        )


def approvals(scope: str) -> Iterator[Checkpoint]:
    """What the tokens lead to, if that is not nothing."""
    yield checkpoint("pending", scope=scope)
    yield checkpoint("due", scope=scope, expires_at=NOW, updated_at=NOW - 15)
    if scope != SCOPES[0]:
        yield checkpoint("resolved", scope=scope, status="resolved", updated_at=NOW - 15)


class Twins:
    """One ledger in Postgres and the same in the reference."""

    def __init__(self, ledger: Ledger) -> None:
        self.url, self.database = ledger
        self.agents, self.model = PostgresAgentStore(self.database), InMemoryAgentStore()
        self.checkpoints = PostgresCheckpointStore(self.database)
        self.model_checkpoints = InMemoryCheckpointStore()
        with self.database.transaction() as tx:
            for row in itertools.chain.from_iterable(map(shapes, SCOPES)):
                self.model.put(row)
                assert tx.one("agent_put", record_params(row)) is not None
        for approval in itertools.chain.from_iterable(map(approvals, SCOPES)):
            self.checkpoints.put(approval)
            self.model_checkpoints.put(approval)

    def rows(self) -> dict[tuple[str, str], AgentRecord]:
        """Every row in Postgres."""
        schema = self.database.statements.ledger_schema
        with psycopg.connect(self.url, row_factory=dict_row) as connection:
            found = connection.execute(
                f"select {', '.join(COLUMNS)} from {schema}.background_agents"
            ).fetchall()
        return {(row["scope"], row["handle"]): record_of(row) for row in found}

    def assert_equal(self) -> None:
        """Every row, every checkpoint and every queued release is the same in both."""
        rows = self.rows()
        for scope in SCOPES:
            handles = [row.handle for row in self.model.list_by_scope(scope)]
            expected = {(scope, handle): self.model.get(handle, scope) for handle in handles}
            assert {key: row for key, row in rows.items() if key[0] == scope} == expected
            for token in TOKENS:
                approval = self.checkpoints.get(token, scope)
                assert approval == self.model_checkpoints.get(token, scope)
            assert set(self.agents.list_releases(scope)) == set(self.model.list_releases(scope))


def reaped(twins: Twins, size: BatchSize) -> tuple[list[Done], int]:
    """Each scope under a policy of its own."""
    policies = [
        (SCOPES[0], RetentionPolicy(max_age_ms=15)),
        (SCOPES[1], RetentionPolicy(keep=31)),
        (SCOPES[2], RetentionPolicy(max_age_ms=9.5, keep=11.0)),
        (SCOPES[3], RetentionPolicy(max_age_ms=10**400)),
        (SCOPES[4], RetentionPolicy(max_age_ms=0, keep=0)),
        (EMPTY, RetentionPolicy(max_age_ms=0, keep=0)),
    ]
    done = list(reap(twins.database, policies, Stamp(NOW), size))
    model = [twins.model.reap(scope, NOW, policy) for scope, policy in policies]
    return done, sum(one.by_age + one.by_keep for one in model)


def flipped(twins: Twins, size: BatchSize) -> tuple[list[Done], int]:
    """Each scope with an age of its own, on either side of its checkpoints' last change."""
    ages = [
        (SCOPES[0], 5),
        (SCOPES[1], 14.5),
        (SCOPES[2], 15),
        (SCOPES[3], 10**400),
        (SCOPES[4], 0),
        (EMPTY, 0),
    ]
    done = list(flip_stale_running(twins.database, ages, Stamp(NOW), size))
    policies = [(scope, RetentionPolicy(stale_running_max_age_ms=age)) for scope, age in ages]
    model = [twins.model.reap(s, NOW, p, twins.model_checkpoints) for s, p in policies]
    return done, sum(one.flipped for one in model)


def reconciled(twins: Twins, size: BatchSize) -> tuple[list[Done], int]:
    """Each scope with a lease of its own, or none."""
    leases = [
        (SCOPES[0], 5),
        (SCOPES[1], 14.5),
        (SCOPES[2], 15),
        (SCOPES[3], None),
        (SCOPES[4], 10**400),
        (EMPTY, 0),
    ]
    done = list(reconcile_parked(twins.database, leases, Stamp(NOW), size))
    model = [
        reconcile_parked_agents(twins.model, twins.model_checkpoints, scope, NOW, lease)
        for scope, lease in leases
    ]
    return done, sum(one.failed + one.rolled_back for one in model)


JOBS = [reaped, flipped, reconciled]
Job = Callable[[Twins, BatchSize], tuple[list[Done], int]]


@pytest.mark.parametrize("job", JOBS)
def test_each_scope_goes_its_own_way(ledger: Ledger, job: Job) -> None:
    """Many batches, few scopes at a time: in each scope just what the reference does."""
    twins = Twins(ledger)

    done, expected = job(twins, SMALL)

    twins.assert_equal()
    assert sum(batch.rows for batch in done) == expected
    assert all(batch.rows <= SMALL.rows for batch in done)
    assert len(done) > 20


@pytest.mark.parametrize("size", [BatchSize(1, 1), BatchSize(7, 3), BatchSize()])
@pytest.mark.parametrize("job", JOBS)
def test_the_size_of_a_batch_changes_nothing(
    plain_ledger: Ledger, job: Job, size: BatchSize
) -> None:
    twins = Twins(plain_ledger)

    done, expected = job(twins, size)

    twins.assert_equal()
    assert sum(batch.rows for batch in done) == expected
    assert all(0 < batch.rows <= size.rows for batch in done)


def test_the_checkpoints_must_be_in_the_same_database(database: Database) -> None:
    """Row and checkpoint are written together, so others are refused before anything is done."""
    agents = PostgresAgentStore(database)
    agents.put(agent(updated_at=0))
    foreign = InMemoryCheckpointStore()

    with pytest.raises(StoreError, match="same database"):
        agents.reap(SCOPE, NOW, RetentionPolicy(stale_running_max_age_ms=1), foreign)
    with pytest.raises(StoreError, match="same database"):
        agents.reconcile_parked(foreign, SCOPE, NOW)

    assert agents.get("a-1", SCOPE) == agent(updated_at=0)
