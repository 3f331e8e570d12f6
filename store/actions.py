"""What persons did: the record of every act at the command line that changes what jobs may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from store.database import Database


@dataclass(frozen=True, slots=True)
class Action:
    """Who did what, and to what. `at` in milliseconds.

    `detail` has whatever else belongs to it by name; of another release, any JSON.
    """

    at: int
    actor: str
    action: str
    job: str | None
    scope: str | None
    handle: str | None
    detail: Any


def newest(database: Database, job: str | None, limit: int) -> list[Action]:
    """The newest acts, of one job or of all."""
    with database.transaction(read_only=True) as tx:
        return [Action(**row) for row in tx.rows("list_actions", {"job": job, "limit": limit})]
