"""The reference: the store contract on dictionaries, in the plainest code that is right.

Every record is copied on its way in and out. One lock makes each call atomic, which is all the
concurrency control there is. It lives as long as its process.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Collection

from store.access import RowSummary, query_background_agents
from store.agents import check_key_of
from store.checkpoints import check_checkpoint
from store.contract import (
    Checkpoint,
    CheckpointStore,
    Expect,
    Reaped,
    Reconciled,
    Release,
    Session,
    SettledStatus,
)
from store.errors import AlreadyExists
from store.reconcile_parked import FAILURES
from store.records import (
    STALE_RUNNING_REAP_ATTRIBUTION,
    TERMINAL,
    AgentRecord,
    Status,
    check_record,
)
from store.retention import Milliseconds, RetentionPolicy, assert_age, assert_retention_policy
from store.retention import before as time_before
from store.sessions import check_session


class InMemoryCheckpointStore:
    """The CheckpointStore contract in memory."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Checkpoint] = {}
        self._lock = threading.RLock()

    def put(self, checkpoint: Checkpoint) -> None:
        """Store a new checkpoint. Raises AlreadyExists and InvalidRecord."""
        check_checkpoint(checkpoint)
        with self._lock:
            key = (checkpoint.scope, checkpoint.token)
            if key in self._rows:
                raise AlreadyExists(f"{checkpoint.scope!r} has this checkpoint already")
            self._rows[key] = copy.deepcopy(checkpoint)

    def get(self, token: str, scope: str) -> Checkpoint | None:
        """The checkpoint, or None."""
        with self._lock:
            return copy.deepcopy(self._rows.get((scope, token)))

    def settle(self, token: str, scope: str, status: SettledStatus, now: int) -> bool:
        """Make a pending checkpoint resolved or expired, once."""
        with self._lock:
            checkpoint = self._rows.get((scope, token))
            if checkpoint is None or checkpoint.status != "pending":
                return False
            checkpoint.status = status
            checkpoint.updated_at = now
            return True


class InMemorySessionStore:
    """The SessionStore contract in memory."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Session] = {}
        self._lock = threading.RLock()

    def put(self, session: Session) -> None:
        """Store a transcript, or write it again. Raises InvalidRecord."""
        check_session(session)
        with self._lock:
            self._rows[session.scope, session.session_id] = copy.deepcopy(session)

    def get(self, session_id: str, scope: str) -> Session | None:
        """The transcript, or None."""
        with self._lock:
            return copy.deepcopy(self._rows.get((scope, session_id)))

    def delete(self, session_id: str, scope: str, written_by: int) -> bool:
        """Delete the transcript if it was last written at or before `written_by`."""
        with self._lock:
            session = self._rows.get((scope, session_id))
            if session is None or session.updated_at > written_by:
                return False
            del self._rows[scope, session_id]
            return True


class InMemoryAgentStore:
    """The AgentStore contract in memory."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], AgentRecord] = {}
        self._releases: list[Release] = []
        self._lock = threading.RLock()

    def put(self, record: AgentRecord) -> None:
        """Store a new row exactly as given. Raises AlreadyExists and InvalidRecord."""
        check_record(record)
        with self._lock:
            key = (record.scope, record.handle)
            if key in self._rows:
                raise AlreadyExists(f"{record.scope!r} has an agent {record.handle!r} already")
            self._rows[key] = copy.deepcopy(record)

    def get(self, handle: str, scope: str) -> AgentRecord | None:
        """The row, or None."""
        with self._lock:
            return copy.deepcopy(self._rows.get((scope, handle)))

    def update(self, handle: str, scope: str, record: AgentRecord, rev: int) -> bool:
        """Replace the row if it is at `rev`."""
        return self.update_if(handle, scope, record, {"rev": rev})

    def update_if(self, handle: str, scope: str, record: AgentRecord, expect: Expect) -> bool:
        """Replace the row if it is as expected."""
        check_record(record)
        check_key_of(record, handle, scope)
        with self._lock:
            row = self._rows.get((scope, handle))
            if row is None or row.rev != expect["rev"]:
                return False
            if any(getattr(row, name) != value for name, value in expect.items()):
                return False
            written = copy.deepcopy(record)
            written.rev = row.rev + 1
            self._rows[scope, handle] = written
            return True

    def delete(self, handle: str, scope: str, rev: int | None = None) -> bool:
        """Delete the row, at `rev` where one is given. Releases no transcript."""
        with self._lock:
            row = self._rows.get((scope, handle))
            if row is None or rev not in (None, row.rev):
                return False
            del self._rows[scope, handle]
            return True

    def list_by_session(
        self, scope: str, session_id: str, status: Status | None = None, limit: int | None = None
    ) -> list[RowSummary]:
        """Summaries of the rows anchored in, or rooted under, a session; newest first."""
        with self._lock:
            return query_background_agents(self._rows.values(), scope, session_id, status, limit)

    def list_by_scope(
        self, scope: str, status: Status | None = None, limit: int | None = None
    ) -> list[RowSummary]:
        """Summaries of a scope's rows; newest first."""
        with self._lock:
            return query_background_agents(self._rows.values(), scope, None, status, limit)

    def list_scopes(self) -> list[str]:
        """The scopes that hold rows, in order."""
        with self._lock:
            return sorted({scope for scope, _ in self._rows})

    def list_releases(self, scope: str) -> list[Release]:
        """The transcripts of the scope queued for release, oldest first."""
        with self._lock:
            return [release for release in self._releases if release.scope == scope]

    def reap(
        self,
        scope: str,
        now: int,
        policy: RetentionPolicy,
        checkpoints: CheckpointStore | None = None,
    ) -> Reaped:
        """Flip silent running rows, then delete by age, then beyond `keep`."""
        assert_retention_policy(policy)
        with self._lock:
            flipped = by_age = by_keep = 0
            if policy.stale_running_max_age_ms is not None:
                silent_since = time_before(now, policy.stale_running_max_age_ms)
                flipped = self._flip(scope, now, silent_since, checkpoints)
            if policy.max_age_ms is not None:
                cutoff = time_before(now, policy.max_age_ms)
                old = [row for row in self._terminal(scope) if _aged_by(row) < cutoff]
                by_age = self._reap(old)
            if policy.keep is not None:
                by_keep = self._reap(self._terminal(scope)[int(policy.keep) :])
            return Reaped(flipped, by_age, by_keep)

    def _terminal(self, scope: str) -> list[AgentRecord]:
        """The scope's terminal rows, newest first."""
        rows = [r for r in self._rows.values() if r.scope == scope and r.status in TERMINAL]
        return sorted(rows, key=lambda row: (_aged_by(row), row.handle), reverse=True)

    def _reap(self, rows: list[AgentRecord]) -> int:
        for row in rows:
            del self._rows[row.scope, row.handle]
            if row.session_id is not None:
                self._releases.append(Release(row.scope, row.session_id, row.handle, _aged_by(row)))
        return len(rows)

    def _flip(
        self, scope: str, now: int, silent_since: int, checkpoints: CheckpointStore | None
    ) -> int:
        flipped = 0
        for row in self._rows.values():
            if row.scope != scope or row.status != "running":
                continue
            heard = row.updated_at
            if checkpoints is not None and row.parked_checkpoint_token is not None:
                checkpoint = checkpoints.get(row.parked_checkpoint_token, scope)
                if row.park_claim_id is not None and checkpoint is not None:
                    if checkpoint.status == "pending" and not _expired(checkpoint, now):
                        continue
                    heard = max(
                        heard, heard if checkpoint.updated_at is None else checkpoint.updated_at
                    )
            if heard >= silent_since:
                continue
            _fail(row, now, STALE_RUNNING_REAP_ATTRIBUTION)
            if row.content.get("summary") is None:
                row.content["summary"] = STALE_RUNNING_REAP_ATTRIBUTION
            flipped += 1
        return flipped

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
        leased_since = (
            None if stale_claim_max_age_ms is None else time_before(now, stale_claim_max_age_ms)
        )
        failed = rolled_back = 0
        with self._lock:
            rows = [
                row
                for row in self._rows.values()
                if row.scope == scope
                and row.writer_id not in exclude_writer_ids
                and row.handle not in exclude_handles
            ]
            for row in sorted(rows, key=lambda row: (row.parked_at or 0, row.handle)):
                token = row.parked_checkpoint_token
                checkpoint = None if token is None else checkpoints.get(token, scope)
                verdict = _verdict(row, checkpoint, now, leased_since)
                if verdict == "checkpoint_expired" and token is not None:
                    checkpoints.settle(token, scope, "expired", now)
                if verdict == "stale_claim":
                    _roll_back(row, now)
                    rolled_back += 1
                elif verdict is not None:
                    _fail(row, now, FAILURES[verdict])
                    failed += 1
        return Reconciled(failed, rolled_back)


def _aged_by(row: AgentRecord) -> int:
    return row.updated_at if row.settled_at is None else row.settled_at


def _expired(checkpoint: Checkpoint, now: int) -> bool:
    if checkpoint.status == "pending":
        return checkpoint.expires_at is not None and checkpoint.expires_at <= now
    return checkpoint.status == "expired"


def _verdict(
    row: AgentRecord, checkpoint: Checkpoint | None, now: int, leased_since: int | None
) -> str | None:
    """What the checkpoint says of the row; None: leave it alone."""
    if row.status not in ("parked", "running"):
        return None
    claimed = row.park_claim_id is not None and row.parked_checkpoint_token is not None
    if row.status == "running" and not claimed:
        return None
    past_lease = leased_since is not None and row.updated_at < leased_since
    if row.status == "running" and not past_lease:
        return None
    if checkpoint is None:
        return "checkpoint_missing"
    if _expired(checkpoint, now):
        return "checkpoint_expired"
    if not past_lease:
        return None
    if checkpoint.status == "pending":
        return "stale_claim" if claimed else None
    if row.status == "running" or checkpoint.updated_at is None:
        return None
    return "stranded" if leased_since is not None and checkpoint.updated_at < leased_since else None


def _fail(row: AgentRecord, now: int, error: str) -> None:
    row.status = "failed"
    row.settled_at = row.updated_at = now
    row.rev += 1
    row.parked_checkpoint_token = row.park_claim_id = None
    if row.content.get("error") is None:
        row.content["error"] = error


def _roll_back(row: AgentRecord, now: int) -> None:
    row.status = "parked"
    row.updated_at = now
    row.rev += 1
    row.park_claim_id = None
    row.writer_epoch = (row.writer_epoch or 0) + 1
