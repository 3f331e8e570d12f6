"""What a store of the ledger offers. Two implementations pass one suite: Postgres and in memory.

Times are milliseconds since the Unix epoch; `scope` is the tenant, in every call; a row of another
scope is a row that is not there. A record handed in or out is the caller's own copy.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Required, TypedDict

from store.access import RowSummary
from store.records import AgentRecord, Status
from store.retention import Milliseconds, RetentionPolicy

CheckpointStatus = Literal["pending", "resolved", "expired"]
SettledStatus = Literal["resolved", "expired"]


@dataclass(slots=True)
class Checkpoint:
    """One approval that a parked agent waits for. `updated_at` is its last change of status."""

    scope: str
    token: str
    status: CheckpointStatus
    expires_at: int | None = None
    updated_at: int | None = None
    content: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Session:
    """One transcript. `updated_at` is when it was last written."""

    scope: str
    session_id: str
    updated_at: int
    content: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Release:
    """A transcript queued for release because its row is gone."""

    scope: str
    session_id: str
    handle: str
    settled_at: int


@dataclass(frozen=True, slots=True)
class Reaped:
    """What a reap did: rows flipped to failed, deleted by age, and deleted as more than `keep`."""

    flipped: int = 0
    by_age: int = 0
    by_keep: int = 0


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What a reconciliation did: rows failed, and claims rolled back to parked."""

    failed: int = 0
    rolled_back: int = 0


class Expect(TypedDict, total=False):
    """What a row must be for `update_if` to write it.

    `rev` is required. A string must be equal, None must be absent, an omitted field is not asked.
    """

    rev: Required[int]
    status: Status
    parked_checkpoint_token: str | None
    park_claim_id: str | None


class CheckpointStore(Protocol):
    """Approval checkpoints by (scope, token)."""

    def put(self, checkpoint: Checkpoint) -> None:
        """Store a new checkpoint. Raises AlreadyExists."""

    def get(self, token: str, scope: str) -> Checkpoint | None:
        """The checkpoint, or None."""

    def settle(self, token: str, scope: str, status: SettledStatus, now: int) -> bool:
        """Make a pending checkpoint resolved or expired, once; False if it was not pending."""


class SessionStore(Protocol):
    """Transcripts by (scope, session_id)."""

    def put(self, session: Session) -> None:
        """Store a transcript, or write it again."""

    def get(self, session_id: str, scope: str) -> Session | None:
        """The transcript, or None."""

    def delete(self, session_id: str, scope: str, written_by: int) -> bool:
        """Delete the transcript if it was last written at or before `written_by`.

        Raises Held where a person keeps it from being deleted; in memory nobody does.
        """


class AgentStore(Protocol):
    """The ledger's rows by (scope, handle). Every write is a compare-and-set on `rev`."""

    def put(self, record: AgentRecord) -> None:
        """Store a new row exactly as given, `rev` included.

        Raises AlreadyExists, the row there untouched, and InvalidRecord.
        """

    def get(self, handle: str, scope: str) -> AgentRecord | None:
        """The row, or None. Authorizes nothing: see can_access_agent_record."""

    def update(self, handle: str, scope: str, record: AgentRecord, rev: int) -> bool:
        """Replace the row if it is at `rev`; it is then at `rev + 1`, whatever `record.rev` says.

        False if there is no such row at that revision. Raises InvalidRecord, also for a record
        whose own key is another.
        """

    def update_if(self, handle: str, scope: str, record: AgentRecord, expect: Expect) -> bool:
        """The same, where the row must also have the expected status, token and claim."""

    def delete(self, handle: str, scope: str, rev: int | None = None) -> bool:
        """Delete the row, at `rev` where one is given. Releases no transcript.

        Raises Held where a person keeps the row from being deleted; in memory nobody does.
        """

    def list_by_session(
        self, scope: str, session_id: str, status: Status | None = None, limit: int | None = None
    ) -> list[RowSummary]:
        """Summaries of the rows anchored in, or rooted under, a session; newest first."""

    def list_by_scope(
        self, scope: str, status: Status | None = None, limit: int | None = None
    ) -> list[RowSummary]:
        """Summaries of a scope's rows; newest first."""

    def list_scopes(self) -> list[str]:
        """The scopes that hold rows, in order."""

    def list_releases(self, scope: str) -> list[Release]:
        """The transcripts of the scope queued for release, oldest first."""

    def reap(
        self,
        scope: str,
        now: int,
        policy: RetentionPolicy,
        checkpoints: CheckpointStore | None = None,
    ) -> Reaped:
        """Flip silent running rows, then delete by age, then beyond `keep`, as the policy names.

        Each deleted row that names a session queues its release. Without any arm nothing happens.
        With `checkpoints`, a claimed row is not flipped while its checkpoint is pending. Raises
        InvalidPolicy before any row is touched.
        """

    def reconcile_parked(
        self,
        checkpoints: CheckpointStore,
        scope: str,
        now: int,
        stale_claim_max_age_ms: Milliseconds | None = None,
        exclude_writer_ids: Collection[str] = (),
        exclude_handles: Collection[str] = (),
    ) -> Reconciled:
        """See reconcile_parked_agents."""


def reconcile_parked_agents(
    agent_store: AgentStore,
    checkpoint_store: CheckpointStore,
    scope: str,
    now: int,
    stale_claim_max_age_ms: Milliseconds | None = None,
    exclude_writer_ids: Collection[str] = (),
    exclude_handles: Collection[str] = (),
) -> Reconciled:
    """Let parked rows and resume claims of a scope follow their approval checkpoints.

    The checkpoint is locked and judged first; the row follows if it is still as it was judged.
    Without a lease (`stale_claim_max_age_ms`) only rows whose checkpoint is dead are failed.
    Excluded rows are left alone altogether. Raises InvalidPolicy before any row is touched.
    """
    return agent_store.reconcile_parked(
        checkpoint_store,
        scope,
        now,
        stale_claim_max_age_ms,
        exclude_writer_ids,
        exclude_handles,
    )
