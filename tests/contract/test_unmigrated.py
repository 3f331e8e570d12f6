"""Ticks on tables that are not this release's: the log says whose they are, and what to do."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest

from config.policy import parse_policy
from config.settings import load_settings
from store.database import Database
from store.migrate import create_ledger, migrate
from tests import ledgers
from tests.conftest import Servers
from worker import frame
from worker.context import Process
from worker.jobs import JOBS

POLICY = parse_policy(
    '[defaults]\nmax_age = "1h"\nstale_running_max_age = "1h"\nstale_claim_max_age = "1h"\n',
    "policy.toml",
)
NOT_MIGRATED = "the worker's own tables are missing or older than this release ("
MIGRATE = "); run `sema-maintenance migrate`"
SCHEDULED = [job for job in JOBS if job != "audit_memory"]
# The ticks that look for work in the ledger before they hand anything out.
LOOKING = ("reap", "flip_stale_running", "reconcile_parked")

TicksSay = Callable[..., set[str]]


@pytest.fixture(params=ledgers.VERSIONS, ids=lambda v: f"pg{v}")
def url(servers: Servers, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database with a ledger and nothing else."""
    name = f"sema_test_unmigrated_{os.getpid()}"
    with ledgers.fresh_database(servers.url(request.param), name) as url:
        with closing(Database(url)) as database:
            create_ledger(database)
        yield url


@pytest.fixture
def ticks_say(url: str, caplog: pytest.LogCaptureFixture) -> TicksSay:
    """What a tick of each of the jobs logs as its error; each has one such line."""

    def say(*jobs: str) -> set[str]:
        process = Process(load_settings({"MAINT_DATABASE_URL": url}), POLICY)
        with closing(process), caplog.at_level(logging.ERROR, "sema_maintenance"):
            for job in jobs:
                assert [*frame.tick(process, job)] == []
        told = [vars(record) for record in caplog.records if record.message == "tick_failed"]
        assert len(told) == len(jobs)
        return {str(each["error"]) for each in told}

    return say


def do(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def migrated(url: str) -> None:
    with closing(Database(url)) as database:
        migrate(database)


def test_own_tables_that_are_missing(ticks_say: TicksSay) -> None:
    [problem] = ticks_say(*SCHEDULED)

    assert problem.startswith(f'{NOT_MIGRATED}relation "maintenance.')
    assert problem.endswith(MIGRATE)
    assert "ledger" not in problem


def test_own_tables_of_an_older_release(url: str, ticks_say: TicksSay) -> None:
    """What is missing is a column here and a table there; the remedy is one."""
    ledgers.create_own_tables_of_0_1_0(url)

    for problem in ticks_say(*SCHEDULED):
        assert problem.startswith(NOT_MIGRATED)
        assert problem.endswith(MIGRATE)
        assert "ledger" not in problem


def test_own_column_that_only_the_newest_migration_brings(url: str, ticks_say: TicksSay) -> None:
    """Postgres does not say in whose table a column is missing."""
    migrated(url)
    do(url, "delete from maintenance.schema_migrations where version > 1")
    do(url, "alter table maintenance.runs rename column started_at to begun_at")

    [problem] = ticks_say("reap")

    assert problem.startswith(NOT_MIGRATED)
    assert "started_at" in problem


def test_table_of_the_ledger_is_the_ledgers(url: str, ticks_say: TicksSay) -> None:
    migrated(url)
    do(url, "alter table public.background_agents rename to away")

    [problem] = ticks_say(*LOOKING)

    assert problem.startswith('the ledger lacks a table: relation "public.background_agents"')
    assert problem.endswith("; check MAINT_DATABASE_URL and MAINT_LEDGER_SCHEMA")
    assert "migrate" not in problem


def test_column_of_the_ledger_is_the_ledgers(url: str, ticks_say: TicksSay) -> None:
    migrated(url)
    do(url, "alter table public.background_agents rename column settled_at to ended_at")

    [problem] = ticks_say("reap")

    assert problem.startswith("the ledger has another shape than expected: column ")
    assert "settled_at" in problem
