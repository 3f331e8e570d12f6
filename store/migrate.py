"""Bring the worker's own tables up to date, and make the server's where that is asked for.

Migrations are plain SQL files, applied in order, each in a transaction of its own, never changed
once released. A database with newer migrations than this release knows is left as it is.

Workers of the release before go on meanwhile. One that needs locks which stop them begins with a
`lock table` of all, waited for in short turns, and does nothing slow after it. One that builds
indexes does so concurrently, statement by statement, and what was left half made is made again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from importlib import resources
from typing import Final, TypeVar

from psycopg import errors as pg

from store.database import Database, Transaction
from store.errors import StoreUnusable, TimedOut
from store.statements import quoted

_NAME: Final = re.compile(r"(\d{4})_(\w+)\.sql")
_LOCK: Final = re.compile(r"^lock table [^;]+;", re.MULTILINE)
_CONCURRENTLY: Final = "create index concurrently "
_INDEX: Final = re.compile(_CONCURRENTLY + r"(\w+) on maintenance\.")
_COMMENT: Final = re.compile(r"--.*\n")
# Pauses of one length could keep step with a writer's.
_UNEVEN: Final = (0.6, 1.4, 0.8, 1.2, 1.0)

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long migrate waits for others, and how long they wait for it."""

    # WHY so short: a worker's write stands behind it as long, and gives up after 400 ms.
    lock_wait: timedelta = timedelta(milliseconds=250)
    pause: timedelta = timedelta(milliseconds=250)
    tries: int = 120
    # For transactions that were open before a concurrent build; nobody stands behind it.
    build_wait: timedelta = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema, as shipped."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text, to notice a file that was changed after its release."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def statements(self) -> list[str]:
        """Its statements one by one."""
        return [each.strip() for each in _COMMENT.sub("", self.text).split(";") if each.strip()]


class _Busy(Exception):
    """Somebody else has what this attempt needs; the transaction is rolled back."""


def shipped() -> list[Migration]:
    """The migrations of this release, in order."""
    found = [
        Migration(int(match[1]), match[2], file.read_text(encoding="utf-8"))
        for file in resources.files("store").joinpath("migrations").iterdir()
        if (match := _NAME.fullmatch(file.name))
    ]
    return sorted(found, key=lambda migration: migration.version)


def migrate(database: Database, patience: Patience | None = None) -> list[Migration]:
    """Apply what is missing; returns what was applied. Safe to repeat and to run twice at once.

    Raises StoreUnusable where an applied migration is not the one this release ships, and TimedOut
    where others were in the way for too long; what was applied before that stays.
    """
    patience = patience or Patience()
    applied: list[Migration] = []
    for migration in shipped():

        def bring(tx: Transaction, migration: Migration = migration) -> bool:
            tx.run_script("migration_table")
            row = tx.one("migration_applied", {"version": migration.version})
            if row is None:
                # WHY not concurrently in a new database: it would wait for old transactions.
                new = any(each.version == 1 for each in applied)
                _apply(database, tx, migration, patience, new=new)
            elif row["checksum"] != migration.checksum:
                raise StoreUnusable(
                    f"migration {migration.version:04} of this release is not the one that was "
                    "applied to this database; install the release that made it"
                )
            return row is None

        if _in_turn(database, patience, bring):
            applied.append(migration)
    return applied


def newest_applied(database: Database) -> int:
    """The newest migration of the database, which may be a newer release's."""
    with database.transaction(read_only=True) as tx:
        [row] = tx.rows("preflight_migration")
    return int(row["version"])


def _in_turn(
    database: Database, patience: Patience, act: Callable[[Transaction], _Answer]
) -> _Answer:
    """What it gives, in a transaction in which no other migration is at work."""
    for attempt in range(patience.tries):
        if attempt:
            seconds = patience.pause.total_seconds() * _UNEVEN[attempt % len(_UNEVEN)]
            with database.transaction(read_only=True) as tx:
                tx.rows("migration_pause", {"seconds": seconds})
        try:
            with database.transaction() as tx:
                [turn] = tx.rows("migration_lock")
                if not turn["mine"]:
                    raise _Busy(
                        "another migration is at work on this database; once it is over, run "
                        "`sema-maintenance migrate` again"
                    )
                return act(tx)
        except _Busy as error:
            busy = error
    raise TimedOut(str(busy))


def _apply(
    database: Database, tx: Transaction, migration: Migration, patience: Patience, *, new: bool
) -> None:
    if lock := _LOCK.search(migration.text):
        _lock(tx, lock[0], patience)
        whole = database.limits.statement_timeout // timedelta(milliseconds=1)
        tx.script(f"set local statement_timeout = {whole}")
    if _CONCURRENTLY not in migration.text:
        tx.script(migration.text)
    elif new:
        tx.script(migration.text.replace(" concurrently ", " "))
    else:
        # WHY as a script: after one with parameters its snapshot would be kept, and waited for.
        tx.script("set local idle_in_transaction_session_timeout = 0")
        _apply_beside_writers(database, migration, patience)
    tx.do(
        "migration_record",
        {"version": migration.version, "name": migration.name, "checksum": migration.checksum},
    )


def _lock(tx: Transaction, statement: str, patience: Patience) -> None:
    tx.rows("migration_brief", {"ms": patience.lock_wait // timedelta(milliseconds=1)})
    try:
        tx.script(statement)
    except (pg.LockNotAvailable, pg.QueryCanceled, pg.DeadlockDetected):
        raise _Busy(
            "the worker's own tables are busy: workers write to them, or they are being vacuumed; "
            "run `sema-maintenance migrate` again, or stop the workers for as long as it takes"
        ) from None


def _apply_beside_writers(database: Database, migration: Migration, patience: Patience) -> None:
    """Statement by statement, each committed by itself; an index that is there stays.

    Meanwhile the transaction that has the turn is idle: it has no snapshot to be waited for.
    """
    with database.outside_transactions() as outside:
        outside.script(f"set lock_timeout = {patience.build_wait // timedelta(milliseconds=1)}")
        for statement in migration.statements:
            index = _INDEX.match(statement)
            try:
                if index is None or _is_missing(outside, index[1]):
                    outside.script(statement)
            except pg.LockNotAvailable:
                raise TimedOut(
                    f"migration {migration.version:04} waited in vain for transactions that were "
                    "open before it; end them, then run `sema-maintenance migrate` again"
                ) from None


def _is_missing(outside: Transaction, index: str) -> bool:
    """Whether it is to be built; one whose build was interrupted is dropped first."""
    state = outside.one("index_state", {"schema": "maintenance", "index": index})
    if state is None or state["valid"]:
        return state is None
    outside.script(f"drop index concurrently maintenance.{index}")
    return True


def create_ledger(database: Database, patience: Patience | None = None) -> None:
    """Create the server's tables and the indexes the jobs use, where they are missing."""

    def create(tx: Transaction) -> None:
        tx.script(f"create schema if not exists {quoted(database.statements.ledger_schema)}")
        tx.run_script("ledger/create_tables")
        tx.run_script("ledger/create_indexes")

    _in_turn(database, patience or Patience(), create)
