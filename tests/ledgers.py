"""The ledgers that the Postgres suites run on: every server version times every layout."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import psycopg
from psycopg.conninfo import make_conninfo

from store.database import Database
from store.migrate import create_ledger, migrate, shipped
from tests.servers import postgres_15_bin, throwaway_postgres

Layout = Literal["plain", "partitioned", "view"]
LAYOUTS: tuple[Layout, ...] = ("plain", "partitioned", "view")
VERSIONS = ("15", "18")
OLD_URL_VARIABLE = "SEMA_TEST_POSTGRES_URL"

# A ledger of another product's names, behind a view that gives them ours.
_RENAMED = {
    "background_agents": {"scope": "tenant", "handle": "agent_key", "rev": "revision",
                          "updated_at": "touched_ms", "content": "document"},
    "checkpoints": {"token": "approval", "expires_at": "deadline_ms"},
    "agent_sessions": {"session_id": "transcript", "updated_at": "written_ms"},
}  # fmt: skip


def why_unavailable(version: str) -> str | None:
    """Why a server of this version cannot be had here, or None."""
    if version == "18" or os.environ.get(OLD_URL_VARIABLE) or postgres_15_bin() is not None:
        return None
    return f"no Postgres 15 here: set {OLD_URL_VARIABLE}, or install Debian's postgresql-15"


@contextmanager
def server(version: str) -> Iterator[str]:
    """The URL of a server's maintenance database: a given one for 15, else one of our own."""
    given = os.environ.get(OLD_URL_VARIABLE)
    if version == "15" and given:
        yield given
        return
    with throwaway_postgres(bin_dir=postgres_15_bin() if version == "15" else None) as url:
        yield url


def major_version(url: str) -> str:
    """The major version of the server at the URL."""
    with psycopg.connect(url) as connection:
        return str(connection.info.server_version // 10000)


@contextmanager
def fresh_database(server_url: str, name: str) -> Iterator[str]:
    """A new, empty database on the server, dropped after the block."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f'drop database if exists "{name}" with (force)'.encode())
        connection.execute(f'create database "{name}"'.encode())
    yield make_conninfo(server_url, dbname=name)
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f'drop database if exists "{name}" with (force)'.encode())


def create(url: str, layout: Layout) -> Database:
    """The ledger in the given layout and the worker's tables, in an empty database."""
    if layout == "plain":
        database = Database(url, "public")
        create_ledger(database)
    elif layout == "partitioned":
        database = Database(url, "public")
        _create_partitioned(url)
        create_ledger(database)
    else:
        create_ledger_behind_view(url)
        database = Database(url, "seen")
    migrate(database)
    return database


def create_own_tables_of_0_1_0(url: str) -> None:
    """The worker's own tables as release 0.1.0 left them."""
    first = shipped()[0]
    with psycopg.connect(url) as connection:
        connection.execute(first.text.encode())
        connection.execute(
            "create table maintenance.schema_migrations (version integer primary key,"
            " name text not null, checksum text not null, applied_at bigint not null default"
            " (extract(epoch from clock_timestamp()) * 1000)::bigint)"
        )
        connection.execute(
            "insert into maintenance.schema_migrations (version, name, checksum)"
            " values (%s, %s, %s)",
            (first.version, first.name, first.checksum),
        )


def _create_partitioned(url: str) -> None:
    """The same tables, the agents hash-partitioned by scope; the indexes are ours as usual."""
    with Database(url, "pattern") as pattern:
        create_ledger(pattern)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "create table public.background_agents"
            " (like pattern.background_agents including defaults including constraints,"
            "  primary key (scope, handle)) partition by hash (scope)"
        )
        for part in range(4):
            connection.execute(
                f"create table public.background_agents_{part} partition of"
                f" public.background_agents for values with (modulus 4, remainder {part})"
                " with (fillfactor = 90)"
            )
        connection.execute("drop schema pattern cascade")


def create_ledger_behind_view(url: str) -> None:
    """The tables under other names in schema `kept`, and views with ours in schema `seen`."""
    with Database(url, "kept") as kept:
        create_ledger(kept)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create schema seen")
        for table, renamed in _RENAMED.items():
            for ours, theirs in renamed.items():
                connection.execute(f"alter table kept.{table} rename column {ours} to {theirs}")
            columns = connection.execute(
                "select column_name from information_schema.columns"
                " where table_schema = 'kept' and table_name = %s order by ordinal_position",
                (table,),
            ).fetchall()
            ours_of = {theirs: ours for ours, theirs in renamed.items()}
            listed = ", ".join(f"{c} as {ours_of.get(c, c)}" for (c,) in columns)
            connection.execute(f"create view seen.{table} as select {listed} from kept.{table}")


def empty(database: Database) -> None:
    """Every row of the ledger and of the worker's tables is gone."""
    # WHY not truncate: on tables this small it costs fifty times as much.
    with database.transaction() as tx:
        tx.script(
            "; ".join(
                f"delete from {table}"
                for table in (
                    "ledger.background_agents",
                    "ledger.checkpoints",
                    "ledger.agent_sessions",
                    "maintenance.run_parts",
                    "maintenance.runs",
                    "maintenance.journal",
                    "maintenance.session_releases",
                    "maintenance.schedule",
                    "maintenance.memory_boundary",
                    "maintenance.failing_scopes",
                    "maintenance.sightings",
                    "maintenance.watches",
                    "maintenance.breakers",
                    "maintenance.holds",
                    "maintenance.pauses",
                    "maintenance.actions",
                    "maintenance.scope_next_due",
                    "maintenance.scope_scans",
                    "maintenance.journal_totals",
                    "maintenance.requests",
                    "maintenance.harvest_rejections",
                    "maintenance.harvest_codes",
                )
            )
        )
