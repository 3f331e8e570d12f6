"""The ledger's rows in Postgres: the store contract over the statements of `store/sql`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from psycopg.types.json import Jsonb

from store.access import RowSummary
from store.batches import BatchSize, Stamp
from store.checkpoints import PostgresCheckpointStore
from store.contract import CheckpointStore, Expect, Reaped, Reconciled, Release
from store.database import Database
from store.errors import AlreadyExists, Held, InvalidRecord, StoreError
from store.flip_stale_running import flip_stale_running
from store.holds import held_by, share
from store.isolation import unbroken
from store.reap import RELEASE_DELAY, reap
from store.reconcile_parked import Excluded, reconcile_parked
from store.records import COLUMNS, AgentRecord, Status, check_record
from store.retention import Milliseconds, RetentionPolicy, assert_age, assert_retention_policy


def record_params(record: AgentRecord) -> dict[str, Any]:
    """The record as parameters, one per column."""
    params = {column: getattr(record, column) for column in COLUMNS}
    return params | {"content": Jsonb(record.content)}


def record_of(row: Mapping[str, Any]) -> AgentRecord:
    """The record of a row of all columns."""
    return AgentRecord(**{column: row[column] for column in COLUMNS})


def check_key_of(record: AgentRecord, handle: str, scope: str) -> None:
    """Raise InvalidRecord where a record is to be written under a key that is not its own."""
    if record.handle != handle:
        raise InvalidRecord("handle", f"is {record.handle!r}, but the row is {handle!r}")
    if record.scope != scope:
        raise InvalidRecord("scope", f"is {record.scope!r}, but the row is in {scope!r}")


class PostgresAgentStore:
    """The AgentStore contract on one database. Its effects are journaled under no run."""

    def __init__(
        self,
        database: Database,
        size: BatchSize | None = None,
        release_delay: timedelta = RELEASE_DELAY,
    ) -> None:
        self._database = database
        self._size = size or BatchSize()
        self._release_delay = release_delay

    def put(self, record: AgentRecord) -> None:
        """Store a new row exactly as given. Raises AlreadyExists and InvalidRecord."""
        check_record(record)
        with self._database.transaction() as tx:
            if tx.one("agent_put", record_params(record)) is None:
                raise AlreadyExists(f"{record.scope!r} has an agent {record.handle!r} already")

    def get(self, handle: str, scope: str) -> AgentRecord | None:
        """The row, or None."""
        with self._database.transaction(read_only=True) as tx:
            row = tx.one("agent_get", {"handle": handle, "scope": scope})
        return None if row is None else record_of(row)

    def update(self, handle: str, scope: str, record: AgentRecord, rev: int) -> bool:
        """Replace the row if it is at `rev`."""
        return self.update_if(handle, scope, record, {"rev": rev})

    def update_if(self, handle: str, scope: str, record: AgentRecord, expect: Expect) -> bool:
        """Replace the row if it is as expected."""
        check_record(record)
        check_key_of(record, handle, scope)
        expected = {
            "expected_rev": expect["rev"],
            "check_status": "status" in expect,
            "expected_status": expect.get("status"),
            "check_token": "parked_checkpoint_token" in expect,
            "expected_token": expect.get("parked_checkpoint_token"),
            "check_claim": "park_claim_id" in expect,
            "expected_claim": expect.get("park_claim_id"),
        }
        with self._database.transaction() as tx:
            return tx.one("agent_update", record_params(record) | expected) is not None

    def delete(self, handle: str, scope: str, rev: int | None = None) -> bool:
        """Delete the row, at `rev` where one is given. Releases no transcript. Raises Held."""
        params = {"handle": handle, "scope": scope, "expected_rev": rev}
        with self._database.transaction() as tx:
            share(tx)
            if (held := held_by(tx, scope, handle)) is not None:
                found = tx.one("agent_get", params)
                if found is None or rev not in {None, found["rev"]}:
                    return False
                raise Held(held)
            return tx.one("agent_delete", params) is not None

    def list_by_session(
        self, scope: str, session_id: str, status: Status | None = None, limit: int | None = None
    ) -> list[RowSummary]:
        """Summaries of the rows anchored in, or rooted under, a session; newest first."""
        return self._list(scope, session_id, status, limit)

    def list_by_scope(
        self, scope: str, status: Status | None = None, limit: int | None = None
    ) -> list[RowSummary]:
        """Summaries of a scope's rows; newest first."""
        return self._list(scope, None, status, limit)

    def _list(
        self, scope: str, session_id: str | None, status: Status | None, limit: int | None
    ) -> list[RowSummary]:
        params = {"scope": scope, "session_id": session_id, "status": status, "limit": limit}
        with self._database.transaction(read_only=True) as tx:
            return [RowSummary(**row) for row in tx.rows("agent_list", params)]

    def list_scopes(self) -> list[str]:
        """The scopes that hold rows, in order."""
        with self._database.transaction(read_only=True) as tx:
            return [row["scope"] for row in tx.rows("list_scopes")]

    def list_releases(self, scope: str) -> list[Release]:
        """The transcripts of the scope queued for release, oldest first."""
        with self._database.transaction(read_only=True) as tx:
            return [Release(**row) for row in tx.rows("list_releases", {"scope": scope})]

    def reap(
        self,
        scope: str,
        now: int,
        policy: RetentionPolicy,
        checkpoints: CheckpointStore | None = None,
    ) -> Reaped:
        """Flip silent running rows, then delete by age, then beyond `keep`."""
        assert_retention_policy(policy)
        if checkpoints is not None:
            self._require_mine(checkpoints)
        stamp = Stamp(now)
        flipped = 0
        if policy.stale_running_max_age_ms is not None:
            flips = flip_stale_running(
                self._database,
                [(scope, policy.stale_running_max_age_ms)],
                stamp,
                self._size,
                ask_checkpoints=checkpoints is not None,
            )
            flipped = sum(done.rows for done in unbroken(flips))
        deleted: Counter[str] = Counter()
        batches = reap(self._database, [(scope, policy)], stamp, self._size, self._release_delay)
        for done in unbroken(batches):
            for (arm, _), count in done.by_kind.items():
                deleted[arm] += count
        return Reaped(flipped, deleted["max_age"], deleted["keep"])

    def reconcile_parked(
        self,
        checkpoints: CheckpointStore,
        scope: str,
        now: int,
        stale_claim_max_age_ms: Milliseconds | None = None,
        exclude_writer_ids: Collection[str] = (),
        exclude_handles: Collection[str] = (),
    ) -> Reconciled:
        """Let parked rows and resume claims follow their approval checkpoints."""
        assert_age("stale_claim_max_age_ms", stale_claim_max_age_ms)
        self._require_mine(checkpoints)
        counts: Counter[str] = Counter()
        batches = reconcile_parked(
            self._database,
            [(scope, stale_claim_max_age_ms)],
            Stamp(now),
            self._size,
            Excluded(exclude_writer_ids, exclude_handles),
        )
        for done in unbroken(batches):
            for (arm, _), count in done.by_kind.items():
                counts[arm] += count
        return Reconciled(counts["failed"], counts["rolled_back"])

    def _require_mine(self, checkpoints: CheckpointStore) -> None:
        # WHY: row and checkpoint are locked and written in one transaction.
        if (
            not isinstance(checkpoints, PostgresCheckpointStore)
            or checkpoints.database is not self._database
        ):
            raise StoreError("the checkpoints must be in the same database as the agents")
