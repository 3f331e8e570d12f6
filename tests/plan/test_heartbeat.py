"""A heartbeat is the commonest write there is: it must leave every index alone."""

import threading

import psycopg
from psycopg.rows import TupleRow

from store.database import Database
from tests.plan.conftest import HOUR, NOW, tables_of

BEATS = 1000
WITHIN_SECONDS = 30.0
# What a heartbeat changes, under our names and under those of the tests' renaming view.
CHANGED = {"updated_at", "rev", "touched_ms", "revision"}
_LEDGERS = """
    select c.oid::regclass::text, c.relkind, c.reloptions
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname in ('public', 'kept')
        and c.relname ~ '^background_agents(_[0-9]+)?$'
        and c.relkind in ('r', 'p')
"""
# Columns of keys stand in the index itself; it depends on those of expressions and predicates.
_INDEXED = """
    select i.indexrelid::regclass::text, a.attname, pg_get_indexdef(i.indexrelid)
    from pg_index i
    join pg_attribute a on a.attrelid = i.indrelid
    where i.indrelid = %s::regclass
        and (
            a.attnum = any (i.indkey)
            or exists (
                select from pg_depend d
                where d.classid = 'pg_class'::regclass and d.objid = i.indexrelid
                    and d.refclassid = 'pg_class'::regclass and d.refobjid = i.indrelid
                    and d.refobjsubid = a.attnum
            )
        )
"""

Connection = psycopg.Connection[TupleRow]


def updates(connection: Connection) -> tuple[int, int]:
    """How many rows of the ledger were updated so far, and how many of them in place."""
    row = connection.execute(
        "select sum(n_tup_upd)::bigint, sum(n_tup_hot_upd)::bigint from pg_stat_user_tables"
        " where relname = any (%s)",
        (tables_of(connection),),
    ).fetchone()
    assert row is not None
    return row


def updates_once(connection: Connection, updated: int) -> tuple[int, int]:
    """The same, as soon as the statistics know of so many updates."""
    pause = threading.Event()
    for _ in range(round(WITHIN_SECONDS / 0.01)):
        counts = updates(connection)
        if counts[0] >= updated:
            return counts
        pause.wait(0.01)
    raise AssertionError(f"the statistics never came to {updated} updates")


def beat(connection: Connection, keys: list[tuple[str, str]]) -> None:
    """Renew each row as its server would: by its key, one transaction each."""
    for scope, handle in keys:
        cursor = connection.execute(
            "update background_agents set updated_at = updated_at + 1, rev = rev + 1"
            " where scope = %s and handle = %s",
            (scope, handle),
        )
        assert cursor.rowcount == 1


def test_heartbeats_are_updates_in_place(big_ledger: str) -> None:
    """Every one, in the first round on fresh pages and in the next ones, at fillfactor 90."""
    with (
        psycopg.connect(big_ledger, autocommit=True) as server,
        psycopg.connect(big_ledger, autocommit=True) as observer,
    ):
        keys = server.execute(
            "select scope, handle from background_agents"
            " where status = 'running' and updated_at > %s order by scope, handle limit %s",
            (NOW - HOUR // 8, BEATS),
        ).fetchall()
        assert len(keys) == BEATS
        for _ in range(3):
            updated, in_place = updates(observer)
            beat(server, keys)
            server.execute("select pg_stat_force_next_flush()")
            server.execute("select 1")

            assert updates_once(observer, updated + BEATS) == (updated + BEATS, in_place + BEATS)


def test_no_index_knows_what_a_heartbeat_changes(ledger: tuple[str, Database]) -> None:
    """Not as a key, not in an expression, not in a predicate; neither of a partition."""
    with psycopg.connect(ledger[0]) as connection:
        tables = [name for name, _, _ in connection.execute(_LEDGERS).fetchall()]
        found = [row for table in tables for row in connection.execute(_INDEXED, (table,))]

    assert len({index for index, _, _ in found}) >= 7
    assert [(index, definition) for index, column, definition in found if column in CHANGED] == []


def test_every_page_of_the_ledger_has_room_for_heartbeats(ledger: tuple[str, Database]) -> None:
    with psycopg.connect(ledger[0]) as connection:
        tables = connection.execute(_LEDGERS).fetchall()

    options = {name: options for name, kind, options in tables if kind == "r"}
    assert len(options) == (4 if any(kind == "p" for _, kind, _ in tables) else 1)
    assert all("fillfactor=90" in (each or []) for each in options.values()), options
