"""A database that was there and refuses connections now: the error says why, and no secret."""

import os
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from store.database import Database, Limits
from store.errors import StoreUnavailable
from tests import ledgers
from tests.conftest import Servers

SECRET = "oyster-4711"
# What a pool waits for a connection, and then says only that it waited.
SHORT = Limits(connect_timeout=timedelta(seconds=1))
CUT = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s"


@pytest.fixture(params=ledgers.VERSIONS, ids=lambda v: f"pg{v}")
def server_url(servers: Servers, request: pytest.FixtureRequest) -> str:
    return servers.url(request.param)


@pytest.fixture
def database(server_url: str) -> Iterator[tuple[str, Database]]:
    """A database of its own, whose pool has connected once, as a role with a password."""
    name = f"sema_test_refused_{os.getpid()}"
    admin(server_url, f"create role {name} login password '{SECRET}'")
    with ledgers.fresh_database(server_url, name) as fresh:
        url = make_conninfo(fresh, user=name, password=SECRET, application_name=name)
        with closing(Database(url, limits=SHORT)) as database:
            assert not refused(database)
            yield name, database
    admin(server_url, f"drop role {name}")


def admin(server_url: str, statement: str, *params: str) -> None:
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(statement.encode(), params or None)


def refused(database: Database) -> str:
    """What a transaction is refused with; empty if it goes through."""
    try:
        with database.transaction(read_only=True) as tx:
            tx.one("clock")
    except StoreUnavailable as error:
        return str(error)
    return ""


def test_database_that_was_dropped(server_url: str, database: tuple[str, Database]) -> None:
    name, known = database
    admin(server_url, f"drop database {name} with (force)")

    said = refused(known)

    assert said.startswith("the database does not answer: ")
    assert f'database "{name}" does not exist' in said
    assert SECRET not in said
    assert known.refusal is not None

    admin(server_url, f"create database {name}")
    assert refused(known) == ""
    assert known.refusal is None


def test_role_that_may_not_log_in_any_more(server_url: str, database: tuple[str, Database]) -> None:
    name, known = database
    admin(server_url, f"alter role {name} nologin")
    admin(server_url, CUT, name)

    said = refused(known)

    assert f'role "{name}" is not permitted to log in' in said
    assert SECRET not in said


def test_pool_whose_connections_are_all_in_use_blames_no_database(server_url: str) -> None:
    limits = Limits(connect_timeout=timedelta(seconds=1), pool_size=1)
    with closing(Database(server_url, limits=limits)) as busy, busy.transaction() as tx:
        assert tx.one("clock") is not None
        assert refused(busy) == "no database connection within the time allowed"
