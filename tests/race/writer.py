"""A live writer on a connection of its own, whose every step is spelled out by the test."""

from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from tests.race.background import Background
from tests.race.rows import LATELY, Rows

_APPLICATION = "live writer"


class Writer:
    """What a server does to its rows: `begin_…` writes, and nobody sees it before `commit`.

    Every write of a row is a compare-and-set as the server's are: `rev` goes up by one. A write
    that finds no row fails the test.
    """

    def __init__(self, url: str, schema: str) -> None:
        self._schema = schema
        self._connection = psycopg.connect(url, application_name=_APPLICATION)

    @property
    def pid(self) -> int:
        """The backend that holds this writer's locks."""
        return self._connection.info.backend_pid

    def close(self) -> None:
        self._connection.close()

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()

    def in_background(self, act: Callable[[], None], rows: Rows) -> Background[None]:
        """Let one of this writer's steps wait for its lock while the test goes on."""
        return Background(act, rows, _APPLICATION)

    def begin_revival(self, handle: str, scope: str = "s") -> None:
        """A finished row starts another cycle under a new owner."""
        self._agent(
            handle,
            scope,
            "status = 'running', settled_at = null, updated_at = %(at)s, writer_id = 'reviver',"
            " writer_epoch = coalesce(writer_epoch, 0) + 1, content = content - 'summary'",
            "status in ('completed', 'failed', 'killed')",
        )

    def begin_heartbeat(self, handle: str, scope: str = "s") -> None:
        """A running row is renewed."""
        self._agent(handle, scope, "updated_at = %(at)s", "status = 'running'")

    def begin_touch(self, handle: str, scope: str = "s", **columns: Any) -> None:
        """A row is written without another sign of life: only what is given, and its revision."""
        assignments = ", ".join(f"{name} = %({name})s" for name in columns) or "name = name"
        self._agent(handle, scope, assignments, "true", **columns)

    def begin_settling(self, handle: str, scope: str = "s") -> None:
        """A row ends well, whatever it was."""
        self._agent(
            handle,
            scope,
            "status = 'completed', settled_at = %(at)s, updated_at = %(at)s,"
            " parked_checkpoint_token = null, park_claim_id = null",
            "true",
        )

    def begin_parking(self, handle: str, token: str, scope: str = "s") -> None:
        """A row waits for a checkpoint: another one, if it did already."""
        self._agent(
            handle,
            scope,
            "status = 'parked', parked_checkpoint_token = %(token)s, park_claim_id = null,"
            " parked_at = %(at)s, updated_at = %(at)s",
            "status in ('running', 'parked')",
            token=token,
        )

    def begin_resuming(self, handle: str, scope: str = "s") -> None:
        """A parked row is claimed for its resume."""
        self._agent(
            handle,
            scope,
            "status = 'running', park_claim_id = 'resume', updated_at = %(at)s",
            "status = 'parked'",
        )

    def begin_finalizing(self, handle: str, scope: str = "s") -> None:
        """A claimed row's resume is finished: it runs, with a new owner, bound to nothing."""
        self._agent(
            handle,
            scope,
            "status = 'running', park_claim_id = null, parked_checkpoint_token = null,"
            " updated_at = %(at)s, writer_id = 'resumer',"
            " writer_epoch = coalesce(writer_epoch, 0) + 1",
            "park_claim_id is not null",
        )

    def begin_deletion(self, handle: str, scope: str = "s") -> None:
        """A row is deleted by its owner."""
        self._one(
            f"delete from {self._schema}.background_agents"
            " where scope = %(scope)s and handle = %(handle)s",
            scope=scope,
            handle=handle,
        )

    def begin_putting(self, handle: str, scope: str = "s", **columns: Any) -> None:
        """A new row under this key, running unless told otherwise, at the first revision."""
        values: dict[str, Any] = {
            "scope": scope,
            "handle": handle,
            "rev": 1,
            "status": "running",
            "owner": "session",
            "session_scoped": True,
            "writer_id": "host-b",
            "spawned_at": LATELY,
            "updated_at": LATELY,
            "content": {},
        } | columns
        self._one(
            f"insert into {self._schema}.background_agents ({', '.join(values)})"
            f" values ({', '.join(f'%({name})s' for name in values)})",
            **{**values, "content": Jsonb(values["content"])},
        )

    def begin_approval(self, token: str, scope: str = "s", at: int = LATELY) -> None:
        """A pending checkpoint is resolved."""
        self._checkpoint(
            token, scope, "status = 'resolved', updated_at = %(at)s", "status = 'pending'", at=at
        )

    def begin_renewal(self, token: str, expires_at: int, scope: str = "s") -> None:
        """A pending checkpoint is given more time."""
        self._checkpoint(
            token, scope, "expires_at = %(expires)s", "status = 'pending'", expires=expires_at
        )

    def begin_dating(self, token: str, at: int, scope: str = "s") -> None:
        """A checkpoint is told when it last changed."""
        self._checkpoint(token, scope, "updated_at = %(at)s", "updated_at is null", at=at)

    def begin_reopening(self, token: str, scope: str = "s") -> None:
        """A checkpoint is asked again: pending, without an end."""
        self._checkpoint(
            token,
            scope,
            "status = 'pending', expires_at = null, updated_at = %(at)s",
            "true",
            at=LATELY,
        )

    def begin_asking(self, token: str, scope: str = "s") -> None:
        """A new pending checkpoint."""
        self._one(
            f"insert into {self._schema}.checkpoints (scope, token, status, content)"
            " values (%(scope)s, %(token)s, 'pending', '{}')",
            scope=scope,
            token=token,
        )

    def begin_withdrawal(self, token: str, scope: str = "s") -> None:
        """A checkpoint is deleted."""
        self._one(
            f"delete from {self._schema}.checkpoints where scope = %(scope)s and token = %(token)s",
            scope=scope,
            token=token,
        )

    def begin_transcript(self, session_id: str, scope: str = "s", at: int = LATELY) -> None:
        """A transcript is written on."""
        self._one(
            f"update {self._schema}.agent_sessions set updated_at = %(at)s"
            " where scope = %(scope)s and session_id = %(session_id)s",
            scope=scope,
            session_id=session_id,
            at=at,
        )

    def _agent(
        self, handle: str, scope: str, assignments: str, condition: str, **params: Any
    ) -> None:
        self._one(
            f"update {self._schema}.background_agents set {assignments}, rev = rev + 1"
            f" where scope = %(scope)s and handle = %(handle)s and {condition}",
            **{"scope": scope, "handle": handle, "at": LATELY, **params},
        )

    def _checkpoint(
        self, token: str, scope: str, assignments: str, condition: str, **params: Any
    ) -> None:
        self._one(
            f"update {self._schema}.checkpoints set {assignments}"
            f" where scope = %(scope)s and token = %(token)s and {condition}",
            **{"scope": scope, "token": token, **params},
        )

    def _one(self, statement: str, **params: Any) -> None:
        cursor = self._connection.execute(statement.encode(), params)
        assert cursor.rowcount == 1, f"the writer found no row for: {statement}"
