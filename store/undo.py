"""Bring a deleted row back until its window ends, or let what is kept of it go at once.

Where a policy has an undo window, the outbox keeps the whole row that a reap deleted, and its
transcript is not due before the window is over. A restore has the holds' lock alone: no batch
deletes meanwhile, and no drain judges a transcript. It locks the transcript, then the entry, as a
drain of a release without holds does, so that one of them comes first: either the row is back and
the drain finds it, or the restore finds that the transcript is gone, or about to go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import errors as pg
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from store.batches import Stamp, journal_left
from store.database import Database, Transaction
from store.errors import Held, NotRestorable
from store.holds import add, alone, share, when
from store.release_sessions import Backend
from store.runs import clock
from store.statements import quoted

RESTORE: Final = "restore"
ERASE: Final = "erase"
# Why a restored row is held, so that no reap deletes it again.
REASON: Final = "restored"
_BATCH: Final = 5_000
_HOLDS_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Kept:
    """A deleted row that can be brought back. Times are milliseconds since the Unix epoch."""

    scope: str
    handle: str
    session_id: str | None
    status: str
    deleted_at: int
    restorable_until: int


@dataclass(frozen=True, slots=True)
class Restored:
    """A row that is back, and the hold that keeps it from being deleted again."""

    scope: str
    handle: str
    session_id: str | None
    rev: int
    writer_epoch: int
    hold: int


def restorable(database: Database, scope: str | None, limit: int) -> list[Kept]:
    """What can be brought back, the newest deletion first, of one scope or of all."""
    with database.transaction(read_only=True) as tx:
        return [Kept(**row) for row in tx.rows("restorable", {"scope": scope, "limit": limit})]


def count_restorable(database: Database) -> int:
    """How many deleted rows are kept and may be brought back."""
    with database.transaction(read_only=True) as tx:
        [row] = tx.rows("count_restorable")
    return int(row["rows"])


def restore(
    database: Database, scope: str, handle: str, by: str, backend: Backend = "postgres"
) -> Restored:
    """Bring a row back as it was, one revision and one writer's epoch on, under a hold.

    Of several of this name, the one that was deleted last. `backend` says where transcripts are:
    only one in this database can be looked for. All in one transaction; raises NotRestorable, and
    TimedOut where a batch of deletions does not end, and then nothing was changed.
    """
    key = {"scope": scope, "handle": handle}
    with database.transaction() as tx:
        alone(tx, "nothing was restored")
        entry = _take(tx, key, backend)
        back = _insert(tx, entry, key)
        tx.do("restore_done", {"id": entry["id"]})
        hold = add(tx, scope, handle, REASON, by)
        restored = Restored(scope, handle, entry["session_id"], **back, hold=hold.id)
        stamped = Stamp(entry["now"]).next_batch()
        journal_left(tx, RESTORE, stamped, {(scope, "restored", None): 1})
        told = {"rev": restored.rev, "session": restored.session_id, "hold": hold.id}
        _record(tx, by, RESTORE, scope, handle, told)
    return restored


def erase(database: Database, scope: str, by: str, batch: int = _BATCH) -> Iterator[int]:
    """Let go of all that is kept of a scope's rows; yields how many, batch by batch.

    Their transcripts are due at once. Raises Held, before anything goes in the batch, where the
    scope or such a row is held. Safe to repeat.
    """
    while True:
        with database.transaction() as tx:
            share(tx)
            _refuse_held(tx, scope)
            now = clock(tx)
            params = {"scope": scope, "limit": batch, "at": None}
            [row] = tx.rows("erase_kept", params)
            if row["rows"]:
                stamped = Stamp(now).next_batch()
                journal_left(tx, ERASE, stamped, {(scope, "erased", None): row["rows"]})
                _record(tx, by, ERASE, scope, None, {"records": row["rows"]})
        if not row["rows"]:
            return
        yield row["rows"]


def _take(tx: Transaction, key: dict[str, str], backend: Backend) -> DictRow:
    """The entry that keeps the row, locked, with its transcript. Raises NotRestorable."""
    what = f"{key['scope']!r} does not get its agent {key['handle']!r} back"
    found = tx.one("restore_find", key)
    if found is None:
        raise NotRestorable(
            f"{what}: nothing is kept of it; `restore --list` shows what can be restored"
        )
    asked = {"scope": key["scope"], "session_id": found["session_id"]}
    named = found["session_id"] is not None
    there = not named or backend != "postgres" or bool(tx.rows("restore_transcript", asked))
    entry = tx.one("restore_entry", found)
    if entry is None:
        raise NotRestorable(f"{what}: its transcript was released meanwhile")
    if not entry["in_time"]:
        raise NotRestorable(f"{what}: its undo window ended at {when(entry['restorable_until'])}")
    if entry["claimed"] and named:
        raise NotRestorable(f"{what}: its transcript {found['session_id']!r} is being released")
    if named and backend == "http" and entry["asked"]:
        raise NotRestorable(
            f"{what}: another system was asked to delete its transcript {found['session_id']!r}, "
            "which may be gone"
        )
    if not there:
        raise NotRestorable(f"{what}: its transcript {found['session_id']!r} is gone")
    return entry


def _insert(tx: Transaction, entry: DictRow, key: dict[str, str]) -> dict[str, int]:
    """Put the row in; gives its revision and epoch. Raises NotRestorable."""
    what = f"{key['scope']!r} does not get its agent {key['handle']!r} back"
    params = {"id": entry["id"], "schema": tx.ledger_schema, "table": "background_agents"}
    columns = tx.rows("restore_columns", params)
    lost = [c["name"] for c in columns if c["absent"] and not c["empty"]]
    if lost:
        raise NotRestorable(
            f"{what}: it had a value in {', '.join(map(repr, lost))}, which the ledger has no "
            "column for any more"
        )
    # WHY not what was added since: it begins with its default.
    kept = [c for c in columns if not (c["absent"] or c["added"] or c["derived"])]
    fragments = {
        "restored_columns": ", ".join(_spelled(c["name"]) for c in kept),
        "restored_values": ", ".join(map(_value, kept)),
    }
    try:
        row = tx.filled("restore_row", fragments, params)
    except pg.GeneratedAlways as error:
        raise NotRestorable(
            f"{what}: a column behind the ledger's view is computed by Postgres, which lets "
            "nobody write it through the view"
        ) from error
    if row is None:
        raise NotRestorable(f"{what}: an agent of that name is there again")
    return {"rev": row["rev"], "writer_epoch": row["writer_epoch"]}


def _spelled(column: str) -> str:
    """A column's name in a statement that takes parameters."""
    return quoted(column).replace("%", "%%")


def _value(column: DictRow) -> str:
    value = f"r.{_spelled(column['name'])}"
    return f"coalesce({value}, 'null')" if column["document"] else value


def _refuse_held(tx: Transaction, scope: str) -> None:
    """Raise Held where a hold lies on the scope or on a row of it that is kept."""
    asked = {"scope": scope, "limit": _HOLDS_NAMED + 1, "held_at": None}
    found = tx.rows("erase_held", asked)
    if found:
        more = ", and others" if len(found) > _HOLDS_NAMED else ""
        raise Held(
            f"{scope!r} keeps what can be restored: {_named(found[:_HOLDS_NAMED])}{more}; "
            "release them first"
        )


def _named(holds: Sequence[DictRow]) -> str:
    return ", ".join(
        f"hold {h['id']} lies on {'the scope' if h['handle'] is None else repr(h['handle'])} "
        f"({h['reason']}, placed by {h['placed_by']})"
        for h in holds
    )


def _record(
    tx: Transaction, by: str, action: str, scope: str, handle: str | None, detail: dict[str, Any]
) -> None:
    params = {"by": by, "action": action, "scope": scope, "handle": handle}
    tx.do("add_action", {**params, "detail": Jsonb(detail)})
