"""A database that cannot be worked on: one clear line, exit 2, and nothing is changed."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from store import database as store_database
from store.database import Database
from store.migrate import create_ledger
from tests.conftest import Servers
from tests.e2e.command_line import EVERY_FINISHED, SECRET, CommandLine
from tests.e2e.placed import Ledger, refusal_without_effect
from tests.ledgers import fresh_database

JOBS = ("reap", "flip-stale-running", "reconcile-parked", "release-sessions")
REAP = ("reap", "--scope", "s", *EVERY_FINISHED)


@pytest.fixture
def ledger(plain_ledger: tuple[str, Database]) -> Iterator[Ledger]:
    """One row for every job to do something with."""
    with closing(Ledger(plain_ledger[0])) as ledger:
        ledger.finished("a", "b")
        ledger.running("c")
        ledger.parked("d", "gone")
        ledger.session("transcript of a")
        yield ledger


@pytest.fixture
def cli(ledger: Ledger) -> CommandLine:
    return CommandLine(ledger.url)


@pytest.fixture
def refused(cli: CommandLine, ledger: Ledger) -> Callable[..., str]:
    """Run a command that must be refused, and see that it changed nothing."""
    return lambda *arguments, **settings: refusal_without_effect(
        cli, ledger, *arguments, **settings
    )


@pytest.mark.parametrize("job", JOBS)
def test_a_database_that_cannot_be_reached(refused: Callable[..., str], job: str) -> None:
    url = f"postgresql://someone:{SECRET}@127.0.0.1:1/nowhere"

    problem = refused(job, "--scope", "s", MAINT_DATABASE_URL=url)

    assert problem.startswith("the database does not answer: ")
    assert problem.endswith("; check MAINT_DATABASE_URL")


def test_a_database_that_is_not_there(cli: CommandLine, ledger: Ledger) -> None:
    url = make_conninfo(ledger.url, dbname="nowhere")

    assert 'database "nowhere" does not exist' in cli.refusal(*REAP, MAINT_DATABASE_URL=url)


def test_without_any_database(tmp_path: Path) -> None:
    """Only `run` makes an embedded one."""
    cli = CommandLine(None, MAINT_DATA_DIR=str(tmp_path))

    problem = cli.refusal(*REAP)

    assert f"There is no embedded database in {tmp_path}/postgres" in problem
    assert "MAINT_DATABASE_URL" in problem
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_too_old(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server of that age can be had here, so this release asks for one that is not out yet."""
    monkeypatch.setattr(store_database, "MIN_VERSION", 990000)

    assert "is too old; 99 or newer is needed" in refused(*REAP)


@pytest.fixture
def read_only(ledger: Ledger) -> str:
    """The ledger, with every transaction read-only by default."""
    return make_conninfo(ledger.url, options="-c default_transaction_read_only=on")


@pytest.mark.parametrize("job", [*JOBS, "audit-memory", "migrate", "import"])
def test_a_read_only_database(refused: Callable[..., str], read_only: str, job: str) -> None:
    alone: dict[str, tuple[str, ...]] = {"audit-memory": (), "migrate": (), "import": ("-",)}

    problem = refused(job, *alone.get(job, ("--scope", "s")), MAINT_DATABASE_URL=read_only)

    assert problem.startswith("the database is read-only: default_transaction_read_only is on")


def test_a_dry_run_on_a_read_only_database(ledger: Ledger, read_only: str) -> None:
    planned = CommandLine(read_only).json("reap", "--scope", "s", *EVERY_FINISHED, "--dry-run")

    assert planned["rows"] == 2


@pytest.mark.parametrize("job", [*JOBS, "agents", "import", "export"])
def test_a_ledger_that_is_not_there(refused: Callable[..., str], job: str) -> None:
    other: dict[str, tuple[str, ...]] = {
        "agents": ("list", "--scope", "s"),
        "import": ("-",),
        "export": (),
    }

    problem = refused(job, *other.get(job, ("--scope", "s")), MAINT_LEDGER_SCHEMA="elsewhere")

    assert "there is no table " in problem
    assert " in schema elsewhere; check MAINT_DATABASE_URL and MAINT_LEDGER_SCHEMA" in problem
    assert "migrate --create-ledger" in problem


@pytest.mark.parametrize("table", ["checkpoints", "background_agents"])
def test_a_ledger_that_lacks_a_table(ledger: Ledger, cli: CommandLine, table: str) -> None:
    before = ledger.tables()
    with ledger.altered(
        f"alter table public.{table} rename to hidden",
        f"alter table public.hidden rename to {table}",
    ):
        problem = cli.refusal("reconcile-parked", "--scope", "s")

    assert problem.startswith(f"there is no table {table} in schema public")
    assert ledger.tables() == before


def test_a_ledger_that_lacks_a_column(cli: CommandLine, ledger: Ledger) -> None:
    before = ledger.tables()
    with ledger.altered(
        "alter table public.background_agents rename column writer_epoch to generation",
        "alter table public.background_agents rename column generation to writer_epoch",
    ):
        problem = cli.refusal(*REAP)

    assert problem.startswith(
        "table background_agents in schema public has no column writer_epoch; "
    )
    assert ledger.tables() == before


def test_a_database_that_was_never_migrated(servers: Servers, ledger: Ledger) -> None:
    version = "18" if ledger.scalar("show server_version_num").startswith("18") else "15"
    with fresh_database(servers.url(version), "sema_test_unmigrated") as url:
        with closing(Database(url)) as database:
            create_ledger(database)
        problem = CommandLine(url).refusal(*REAP)

    assert problem == (
        "the worker's own tables are missing (no maintenance.runs); run `sema-maintenance migrate`"
    )


def test_a_database_of_an_older_release(cli: CommandLine, ledger: Ledger) -> None:
    with ledger.altered(
        "update maintenance.schema_migrations set version = version - 1000",
        "update maintenance.schema_migrations set version = version + 1000",
    ):
        problem = cli.refusal(*REAP)

    assert problem == (
        "the worker's own tables are older than this release; run `sema-maintenance migrate`"
    )


@pytest.fixture
def poor(ledger: Ledger) -> Iterator[str]:
    """The URL of a role that may read everything and change nothing."""
    ledger.do(
        f"drop role if exists poor; create role poor login password '{SECRET}';"
        " grant usage on schema public, maintenance to poor;"
        " grant select on all tables in schema public, maintenance to poor"
    )
    yield make_conninfo(ledger.url, user="poor", password=SECRET)
    ledger.do("drop owned by poor; drop role poor")


@pytest.mark.parametrize(
    ("job", "lacking"),
    [
        ("reap", "UPDATE, DELETE on public.background_agents"),
        ("flip-stale-running", "UPDATE on public.background_agents"),
        ("reconcile-parked", "UPDATE on public.background_agents"),
        ("release-sessions", "UPDATE, DELETE on public.agent_sessions"),
        ("import", "INSERT on public.background_agents"),
    ],
)
def test_a_role_that_lacks_a_privilege(
    refused: Callable[..., str], poor: str, job: str, lacking: str
) -> None:
    arguments = ("-",) if job == "import" else ("--scope", "s")

    problem = refused(job, *arguments, MAINT_DATABASE_URL=poor)

    assert problem.startswith(f"role poor lacks the privilege {lacking}; grant it")


def test_a_role_that_lacks_a_privilege_on_the_workers_own_tables(
    refused: Callable[..., str], ledger: Ledger, poor: str
) -> None:
    ledger.do("grant update, delete on public.background_agents to poor")

    problem = refused(*REAP, MAINT_DATABASE_URL=poor)

    assert problem.startswith("role poor lacks the privilege INSERT, UPDATE on maintenance.runs")


def test_a_role_that_may_read_can_look_and_try(ledger: Ledger, poor: str) -> None:
    cli = CommandLine(poor)

    assert cli.json("agents", "list", "--scope", "s") != []
    assert cli.json("reap", "--scope", "s", *EVERY_FINISHED, "--dry-run")["rows"] == 2


def test_a_role_that_may_not_even_look(ledger: Ledger, poor: str) -> None:
    ledger.do("revoke usage on schema maintenance from poor")

    problem = CommandLine(poor).refusal("history")

    assert problem.startswith("role poor lacks the privilege SELECT on maintenance.runs")


def test_no_password_is_ever_shown(ledger: Ledger, poor: str) -> None:
    ended = CommandLine(poor, MAINT_LOG_LEVEL="debug").run("agents", "list", "--scope", "s")

    assert ended.code == 0
    assert "database: poor@" in ended.stderr
    assert SECRET not in ended.stderr + ended.stdout
