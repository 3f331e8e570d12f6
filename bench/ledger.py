"""A ledger to measure on: loaded once by COPY, put back before every measurement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from store.database import Database
from store.migrate import create_ledger, migrate
from tests.servers import postgres_15_bin, throwaway_postgres
from worker.sample import bulk
from worker.sample.cycle import Mix

NOW_MS = 1_796_029_200_000
SEED = 1
TABLES = ("background_agents", "checkpoints", "agent_sessions")


@dataclass(frozen=True)
class Ledger:
    """One server's ledger, with a copy of it in schema `source`."""

    url: str
    database: Database
    rows: int
    version: str

    def put_back(self) -> None:
        """The ledger as it was loaded, vacuumed, with a checkpoint behind it."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("truncate maintenance.journal, maintenance.session_releases")
            for table in TABLES:
                connection.execute(f"truncate public.{table}")
                connection.execute(f"insert into public.{table} select * from source.{table}")
                connection.execute(f"vacuum (analyze, freeze) public.{table}")
            connection.execute("checkpoint")

    def one(self, query: str) -> int:
        """A single number."""
        with psycopg.connect(self.url) as connection:
            row = connection.execute(query).fetchone()
        assert row is not None
        return int(row[0])


@contextmanager
def loaded(version: str, rows: int, scopes: int, mix: Mix) -> Iterator[Ledger]:
    """A ledger of `rows` rows dealt to `scopes` scopes in turn, on a server of its own.

    fsync and synchronous_commit are on, as in production; autovacuum is off, so that it does not
    fall into one measurement and not into another.
    """
    options = {"fsync": "on", "autovacuum": "off", "shared_buffers": "512MB", "max_wal_size": "4GB"}
    bin_dir = postgres_15_bin() if version == "15" else None
    with throwaway_postgres(bin_dir, options) as url, Database(url) as database:
        create_ledger(database)
        migrate(database)
        with psycopg.connect(url) as connection:
            connection.execute("create schema source")
            for table in TABLES:
                connection.execute(f"create table source.{table} (like public.{table})")
            _copy(
                connection,
                "background_agents",
                bulk.COPY_COLUMNS,
                bulk.copy_rows,
                rows,
                scopes,
                mix,
            )
            _copy(
                connection,
                "checkpoints",
                bulk.CHECKPOINT_COLUMNS,
                bulk.copy_checkpoints,
                rows,
                scopes,
                mix,
            )
            _copy(
                connection,
                "agent_sessions",
                bulk.SESSION_COLUMNS,
                bulk.copy_sessions,
                rows,
                scopes,
                mix,
            )
        shown = psycopg.connect(url).execute("show server_version").fetchone()
        yield Ledger(url, database, rows, str(shown[0]) if shown else version)


def _copy(
    connection: psycopg.Connection,
    table: str,
    columns: tuple[str, ...],
    make: object,
    rows: int,
    scopes: int,
    mix: Mix,
) -> None:
    stream = make(SEED, NOW_MS, rows, scopes, **mix)  # type: ignore[operator]
    statement = f"copy source.{table} ({', '.join(columns)}) from stdin"
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in stream:
            copy.write_row(row)
