"""Approval checkpoints in Postgres."""

from __future__ import annotations

from typing import get_args

from psycopg.types.json import Jsonb

from store.contract import Checkpoint, CheckpointStatus, SettledStatus
from store.database import Database
from store.errors import AlreadyExists, InvalidRecord
from store.records import check_content, check_integer, check_key, check_text


def check_checkpoint(checkpoint: Checkpoint) -> None:
    """Raise InvalidRecord unless the ledger can hold the checkpoint exactly as it is."""
    check_text("scope", checkpoint.scope, empty=False)
    check_text("token", checkpoint.token)
    check_key(checkpoint.scope, "token", checkpoint.token)
    if checkpoint.status not in get_args(CheckpointStatus):
        known = ", ".join(get_args(CheckpointStatus))
        raise InvalidRecord("status", f"must be one of {known}: {checkpoint.status!r}")
    for member, value in (
        ("expiresAt", checkpoint.expires_at),
        ("updatedAt", checkpoint.updated_at),
    ):
        if value is not None:
            check_integer(member, value)
    check_content(checkpoint.content)


class PostgresCheckpointStore:
    """The CheckpointStore contract on one database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def put(self, checkpoint: Checkpoint) -> None:
        """Store a new checkpoint. Raises AlreadyExists and InvalidRecord."""
        check_checkpoint(checkpoint)
        params = {
            "scope": checkpoint.scope,
            "token": checkpoint.token,
            "status": checkpoint.status,
            "expires_at": checkpoint.expires_at,
            "updated_at": checkpoint.updated_at,
            "content": Jsonb(checkpoint.content),
        }
        with self.database.transaction() as tx:
            if tx.one("checkpoint_put", params) is None:
                raise AlreadyExists(f"{checkpoint.scope!r} has this checkpoint already")

    def get(self, token: str, scope: str) -> Checkpoint | None:
        """The checkpoint, or None."""
        with self.database.transaction(read_only=True) as tx:
            row = tx.one("checkpoint_get", {"token": token, "scope": scope})
        return None if row is None else Checkpoint(**row)

    def settle(self, token: str, scope: str, status: SettledStatus, now: int) -> bool:
        """Make a pending checkpoint resolved or expired, once."""
        params = {"token": token, "scope": scope, "status": status, "now": now}
        with self.database.transaction() as tx:
            return tx.one("checkpoint_settle", params) is not None
