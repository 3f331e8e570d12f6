"""Transcripts in Postgres."""

from __future__ import annotations

from psycopg.types.json import Jsonb

from store.contract import Session
from store.database import Database
from store.errors import Held
from store.holds import share, transcript_held_by
from store.records import check_content, check_integer, check_key, check_text


def check_session(session: Session) -> None:
    """Raise InvalidRecord unless the ledger can hold the transcript exactly as it is."""
    check_text("scope", session.scope, empty=False)
    check_text("sessionId", session.session_id)
    check_key(session.scope, "sessionId", session.session_id)
    check_integer("updatedAt", session.updated_at)
    check_content(session.content)


class PostgresSessionStore:
    """The SessionStore contract on one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, session: Session) -> None:
        """Store a transcript, or write it again. Raises InvalidRecord."""
        check_session(session)
        params = {
            "scope": session.scope,
            "session_id": session.session_id,
            "updated_at": session.updated_at,
            "content": Jsonb(session.content),
        }
        with self._database.transaction() as tx:
            tx.do("session_put", params)

    def get(self, session_id: str, scope: str) -> Session | None:
        """The transcript, or None."""
        with self._database.transaction(read_only=True) as tx:
            row = tx.one("session_get", {"session_id": session_id, "scope": scope})
        return None if row is None else Session(**row)

    def delete(self, session_id: str, scope: str, written_by: int) -> bool:
        """Delete the transcript if it was last written at or before `written_by`. Raises Held."""
        params = {"session_id": session_id, "scope": scope, "written_by": written_by}
        with self._database.transaction() as tx:
            share(tx)
            if (held := transcript_held_by(tx, scope, session_id)) is not None:
                found = tx.one("session_get", params)
                if found is None or found["updated_at"] > written_by:
                    return False
                raise Held(held)
            return tx.one("session_delete", params) is not None
