"""`migrate`: the worker's own tables, a new ledger, and the indexes that an existing one lacks."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from store.database import Database
from store.indexes import create_missing_indexes, shipped_indexes
from store.migrate import shipped
from tests.conftest import Servers
from tests.e2e.command_line import SECRET, CommandLine, finished
from tests.e2e.placed import rows_of
from tests.ledgers import VERSIONS, Layout, create, create_own_tables_of_0_1_0, fresh_database
from tests.waiting import wait_until

NAMES = {index.name for index in shipped_indexes()}


@pytest.fixture(params=VERSIONS, ids=lambda version: f"pg{version}")
def empty(servers: Servers, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database with nothing in it."""
    with fresh_database(servers.url(request.param), "sema_test_schema") as url:
        yield url


@pytest.fixture
def laid_out(empty: str) -> Iterator[Callable[[Layout], str]]:
    """Makes a ledger in a layout, with all its indexes; gives the URL."""
    with ExitStack() as stack:

        def make(layout: Layout) -> str:
            stack.enter_context(closing(create(empty, layout)))
            return empty

        yield make


def do(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def tables(url: str) -> set[str]:
    query = (
        "select schemaname || '.' || tablename as name from pg_tables"
        " where schemaname in ('public', 'maintenance')"
    )
    return {row["name"] for row in rows_of(url, query)}


def indexes(url: str) -> dict[str, bool]:
    """Every index on the agents or on a partition of them, and whether it is valid."""
    query = (
        "select i.indexrelid::regclass::text as name, i.indisvalid as valid from pg_index i"
        " where i.indrelid::regclass::text like '%background_agents%' and not i.indisprimary"
    )
    return {row["name"].removeprefix("public."): row["valid"] for row in rows_of(url, query)}


def definitions(url: str) -> dict[str, str]:
    query = "select indexname, indexdef from pg_indexes where tablename = 'background_agents'"
    return {row["indexname"]: row["indexdef"] for row in rows_of(url, query)}


def test_migrate_makes_the_workers_tables_and_no_others(empty: str) -> None:
    cli = CommandLine(empty)

    first = cli.json("migrate")
    again = cli.json("migrate")

    assert first["migrations"][0] == "0001_maintenance"
    assert again["migrations"] == []
    assert "maintenance.journal" in tables(empty)
    assert not any(name.startswith("public.") for name in tables(empty))
    assert cli.run("migrate").stdout == "migrations: up to date\n"


def test_migrate_a_database_of_the_release_before(empty: str) -> None:
    """It says in one document what it applied; a command before that is refused."""
    create_own_tables_of_0_1_0(empty)
    cli = CommandLine(empty)

    early = cli.refusal("history")
    ended = cli.run("migrate", "--json")

    assert early == (
        "the worker's own tables are missing (no maintenance.requests); "
        "run `sema-maintenance migrate`"
    )
    assert ended.code == 0
    assert json.loads(ended.stdout) == {
        "migrations": [f"{each.version:04}_{each.name}" for each in shipped()[1:]],
        "newer": None,
    }
    assert cli.json("migrate")["migrations"] == []
    assert cli.run("history").code == 0


def test_create_ledger_once(empty: str) -> None:
    cli = CommandLine(empty)

    first = cli.run("migrate", "--create-ledger")
    again = cli.run("migrate", "--create-ledger")

    assert first.stdout.startswith(
        "ledger: made background_agents, checkpoints, agent_sessions\nmigrations: applied 0001"
    )
    assert again.stdout.startswith("ledger: there already, left as it is\n")
    assert indexes(empty).keys() >= NAMES
    assert cli.json("reap", "--scope", "s", "--keep", "1")["state"] == "succeeded"


def test_create_ledger_leaves_the_indexes_of_a_table_with_writers_alone(
    laid_out: Callable[[Layout], str],
) -> None:
    """A plain index build would stop every writer of a ledger that is there."""
    url = laid_out("plain")
    do(url, "drop table checkpoints", "drop index background_agents_running")

    made = CommandLine(url).json("migrate", "--create-ledger")

    assert made["ledger"] == ["checkpoints"]
    assert "public.checkpoints" in tables(url)
    assert "background_agents_running" not in indexes(url)


def test_missing_indexes_of_a_plain_ledger(laid_out: Callable[[Layout], str]) -> None:
    """One is there, one was left half made, the others are missing."""
    url = laid_out("plain")
    wanted = definitions(url)
    rows = (
        "insert into background_agents (scope, handle, rev, status, owner, session_scoped,"
        " writer_id, spawned_at, updated_at)"
        " select 's', n::text, 1, 'running', 'o', true, 'w', 1, 1 from generate_series(1, 9) n"
    )
    do(url, *(f"drop index {name}" for name in NAMES - {"background_agents_parked"}), rows)
    with pytest.raises(pg.UniqueViolation):
        do(url, "create unique index concurrently background_agents_running"
                " on background_agents (status)")  # fmt: skip
    assert indexes(url)["background_agents_running"] is False

    done = CommandLine(url).json("migrate", "--indexes")["indexes"]

    assert {step["index"]: step["action"] for step in done} == dict.fromkeys(NAMES, "made") | {
        "background_agents_parked": "present",
        "background_agents_running": "made again",
    }
    assert indexes(url) == dict.fromkeys(NAMES, True)
    assert definitions(url) == wanted
    again = CommandLine(url).run("migrate", "--indexes")
    assert again.stdout == "migrations: up to date\nindexes: all there\n"


def whole(url: str) -> dict[str, int]:
    """Of each index on the parent that is valid: how many valid ones on partitions belong to it."""
    query = (
        "select p.indexrelid::regclass::text as name, count(*) as parts from pg_index p"
        " join pg_inherits h on h.inhparent = p.indexrelid"
        " join pg_index c on c.indexrelid = h.inhrelid and c.indisvalid"
        " where p.indrelid = 'background_agents'::regclass and p.indisvalid group by 1"
    )
    return {row["name"]: row["parts"] for row in rows_of(url, query)}


def test_missing_indexes_of_a_partitioned_ledger(laid_out: Callable[[Layout], str]) -> None:
    """One was interrupted: it is on the parent alone, with one partition attached, one built."""
    url = laid_out("partitioned")
    wanted = definitions(url)
    on = "(scope, handle) where status = 'running'"
    do(
        url,
        *(f"drop index {name}" for name in NAMES - {"background_agents_parked"}),
        f"create index background_agents_running on only background_agents {on}",
        f"create index background_agents_0_running on background_agents_0 {on}",
        "alter index background_agents_running attach partition background_agents_0_running",
        f"create index background_agents_2_running on background_agents_2 {on}",
    )

    ended = CommandLine(url).run("migrate", "--indexes")

    assert ended.code == 0
    assert "index background_agents_3_running on background_agents_3: made" in ended.stderr
    assert "background_agents_2_running on" not in ended.stderr
    assert whole(url).items() >= dict.fromkeys(NAMES, 4).items()
    assert all(indexes(url).values())
    assert definitions(url).keys() == wanted.keys()
    again = CommandLine(url).run("migrate", "--indexes")
    assert again.stdout == "migrations: up to date\nindexes: all there\n"


def test_writers_go_on_while_an_index_waits_for_one_of_them(
    laid_out: Callable[[Layout], str],
) -> None:
    """The lock on a partitioned parent is asked for in short turns: nobody queues behind it."""
    url = laid_out("partitioned")
    do(url, "drop index background_agents_running")
    insert = (
        "insert into background_agents (scope, handle, rev, status, owner, session_scoped,"
        " writer_id, spawned_at, updated_at) values ('s', %s, 1, 'running', 'o', true, 'w', 1, 1)"
    )
    steps: list[Any] = []
    with closing(Database(url)) as database, psycopg.connect(url) as holder:
        holder.execute(insert, ("held",))
        building = threading.Thread(target=lambda: steps.extend(create_missing_indexes(database)))
        building.start()
        waiting = (
            "select 1 from pg_stat_activity where datname = current_database()"
            " and wait_event_type = 'Lock' and query like 'create index%'"
        )
        wait_until(lambda: rows_of(url, waiting) != [], "the build waits for the holder")
        with psycopg.connect(url, options="-c statement_timeout=20s") as writer:
            writer.execute(insert, ("meanwhile",))
        holder.commit()
        building.join(60)

    assert not building.is_alive()
    assert steps[-1].action in {"attached", "present"}
    assert whole(url)["background_agents_running"] == 4


def test_a_view_gets_its_statements_printed(laid_out: Callable[[Layout], str]) -> None:
    url = laid_out("view")
    cli = CommandLine(url, MAINT_LEDGER_SCHEMA="seen")
    before = indexes(url)

    ended = cli.run("migrate", "--indexes")
    statements = cli.json("migrate", "--indexes")["statements"]

    assert ended.code == 0
    assert ended.stdout.splitlines()[2:] == statements
    assert len(statements) == len(NAMES)
    assert statements[3] == (
        "create index concurrently if not exists background_agents_running"
        ' on "seen"."background_agents" (scope, handle) where status = \'running\';'
    )
    assert indexes(url) == before


def test_an_index_of_that_name_on_another_table_is_not_touched(
    laid_out: Callable[[Layout], str],
) -> None:
    url = laid_out("plain")
    do(
        url,
        "drop index background_agents_running",
        "create index background_agents_running on checkpoints (scope)",
    )

    problem = CommandLine(url).refusal("migrate", "--indexes")

    assert problem.startswith("index background_agents_running in schema public belongs to another")


def test_waiting_for_migrations_ends_with_them_and_makes_none(empty: str) -> None:
    cli = CommandLine(empty)
    with cli.start("migrate", "--wait", "50s") as waiting:
        assert waiting.stderr is not None
        said = [waiting.stderr.readline() for _ in range(2)]
        assert tables(empty) == set()
        cli.run("migrate")
        ended = finished(waiting)

    assert b"waiting: the worker's own tables are missing" in said[1]
    assert (ended.code, ended.stdout) == (0, "migrations: those of this release are there\n")
    assert cli.run("migrate", "--wait", "1ms").code == 0


def test_waiting_for_migrations_in_vain_says_what_was_in_the_way(empty: str) -> None:
    for url, reason in (
        (empty, "the worker's own tables are missing (no maintenance.schema_migrations); run"),
        ("host=127.0.0.1 port=1 dbname=a", "the database does not answer: connection to server"),
    ):
        ended = CommandLine(url).run("migrate", "--wait", "10ms")

        [problem] = ended.problems
        assert (ended.code, ended.stdout) == (1, "")
        assert problem.startswith(f"waited for 10ms in vain: {reason}")


def test_waiting_as_a_role_without_grants_says_what_to_run(empty: str) -> None:
    """Another role migrated: what `grants` prints, which asks no database, ends the wait."""
    CommandLine(empty).run("migrate")
    role = f"waits_{os.getpid()}"
    with psycopg.connect(empty, autocommit=True) as owner:
        owner.execute(f"create role {role} login password '{SECRET}'".encode())
        try:
            cli = CommandLine(make_conninfo(empty, user=role, password=SECRET))
            [problem] = cli.run("migrate", "--wait", "10ms").problems
            granted = CommandLine(None).json("grants", "--role", role)["statements"]
            for statement in granted:
                if '"maintenance"' in statement:
                    owner.execute(statement.encode())
            ended = cli.run("migrate", "--wait", "10ms")
        finally:
            owner.execute(f"drop owned by {role}".encode())
            owner.execute(f"drop role {role}".encode())

    assert problem == (
        f"waited for 10ms in vain: the worker's own tables are there, but role {role} may not read "
        f"them: `sema-maintenance grants --role {role}` prints what to grant, and their owner runs "
        "it"
    )
    assert ended.code == 0


def test_waiting_for_migrations_takes_no_other_option(empty: str) -> None:
    problem = CommandLine(empty).refusal("migrate", "--wait", "1s", "--indexes")

    assert problem.startswith("--wait changes nothing; give it without another option")


def test_an_address_may_leave_everything_to_the_variables_of_libpq(empty: str) -> None:
    parts = conninfo_to_dict(empty)
    given = {
        variable: str(parts[part])
        for part, variable in {
            "host": "PGHOST",
            "port": "PGPORT",
            "user": "PGUSER",
            "password": "PGPASSWORD",
            "dbname": "PGDATABASE",
        }.items()
        if parts.get(part)
    }

    ended = CommandLine("postgresql://").process("migrate", **given)

    assert ended.code == 0
    assert f"database: {parts['host']}" in ended.stderr
    assert f"/{parts['dbname']}, schema public" in ended.stderr
    assert "maintenance.journal" in tables(empty)
