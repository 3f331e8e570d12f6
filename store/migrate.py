"""Bring the worker's own tables up to date, and make the server's where that is asked for.

Migrations are plain SQL files, applied in order, each in a transaction of its own, never changed
once released. A database with newer migrations than this release knows is left as it is.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib import resources

from store.database import Database, Transaction
from store.errors import StoreUnusable
from store.statements import quoted

_NAME = re.compile(r"(\d{4})_(\w+)\.sql")


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


def shipped() -> list[Migration]:
    """The migrations of this release, in order."""
    found = [
        Migration(int(match[1]), match[2], file.read_text(encoding="utf-8"))
        for file in resources.files("store").joinpath("migrations").iterdir()
        if (match := _NAME.fullmatch(file.name))
    ]
    return sorted(found, key=lambda migration: migration.version)


def migrate(database: Database) -> list[Migration]:
    """Apply what is missing; returns what was applied. Safe to repeat and to run twice at once.

    Raises StoreUnusable where an applied migration is not the one this release ships.
    """
    applied = []
    for migration in shipped():
        with database.transaction() as tx:
            tx.rows("migration_lock")
            tx.run_script("migration_table")
            row = tx.one("migration_applied", {"version": migration.version})
            if row is None:
                _apply(tx, migration)
                applied.append(migration)
            elif row["checksum"] != migration.checksum:
                raise StoreUnusable(
                    f"migration {migration.version:04} of this release is not the one that was "
                    "applied to this database; install the release that made it"
                )
    return applied


def newest_applied(database: Database) -> int:
    """The newest migration of the database, which may be a newer release's."""
    with database.transaction(read_only=True) as tx:
        [row] = tx.rows("preflight_migration")
    return int(row["version"])


def _apply(tx: Transaction, migration: Migration) -> None:
    tx.script(migration.text)
    tx.do(
        "migration_record",
        {"version": migration.version, "name": migration.name, "checksum": migration.checksum},
    )


def create_ledger(database: Database) -> None:
    """Create the server's tables and the indexes the jobs use, where they are missing."""
    with database.transaction() as tx:
        tx.rows("migration_lock")
        tx.script(f"create schema if not exists {quoted(database.statements.ledger_schema)}")
        tx.run_script("ledger/create_tables")
        tx.run_script("ledger/create_indexes")
