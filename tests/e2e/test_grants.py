"""What `grants` prints is enough for what it is for, and nothing of it can be left out.

That something breaks without a privilege is said by Postgres, not by us: every statement that the
jobs sent is planned again without it, which checks privileges as running it would.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege

from config.policy import Policy, parse_policy
from store.database import Database, Transaction
from store.release_sessions import BACKENDS, Backend
from store.statements import quoted
from tests.e2e.command_line import SECRET, CommandLine
from tests.e2e.test_privileges import (
    POLICY,
    PREVIEWED,
    SCHEDULED,
    WITHOUT_SCOPES,
    Narrow,
    all_went_well,
    command,
    process_of,
    unguarded,
    worked,
)
from tests.transcript_system import transcript_system
from tests.waiting import wait_until
from worker import frame
from worker.context import Process
from worker.jobs import JOBS
from worker.readings import Readings

# Whoever prints a name without care prints another statement with it.
NAMES = (
    "plain",
    "Sema Worker",
    'we"ird',
    "o'brien",
    '"; drop table public.background_agents; --',
    "worker$$;\\",
    "select",
    "rôle 役",
)
TABLES = {"public", "maintenance"}
# The server's variables under which agents cannot write memory.
CANNOT_WRITE = {"AGENT_DATA_DIR": "/srv/data", "WORKSPACE_ROOTS": "/srv/work"}
Sent = dict[bytes, Mapping[str, Any]]


def printed(url: str | None, role: str, *arguments: str, **settings: str) -> list[str]:
    """The statements, without the comments before them."""
    ended = CommandLine(url, **settings).run("grants", "--role", role, *arguments)
    assert (ended.code, ended.problems) == (0, [])
    return [line for line in ended.stdout.splitlines() if not line.startswith("--")]


class Granted(Narrow):
    """A ledger with something for every job to do, and a role with exactly what was printed."""

    def __init__(self, url: str, *arguments: str, **settings: str) -> None:
        super().__init__(url)
        self.settings = settings
        # WHY: that it may use the schemas is to come from what is printed.
        self.owner.do(
            f"revoke usage on schema public, maintenance from {self.role};"
            " revoke usage on schema public from public"
        )
        self.statements = printed(None, self.role, *arguments, **settings)
        self.owner.do(" ".join(self.statements))

    @property
    def role(self) -> str:
        return f"narrow_{os.getpid()}"

    def close(self) -> None:
        self.owner.do("grant usage on schema public to public")
        super().close()

    def process(self, policy: Policy) -> Process:
        return process_of(self.url, policy, **self.settings)

    def revoked(self) -> Iterator[str]:
        """Take each single privilege away for the time of a step; gives its name."""
        for statement in self.statements:
            held, on = statement.removeprefix("grant ").removesuffix(";").split(" on ", 1)
            target = on.rpartition(" to ")[0]
            for privilege in held.split(", "):
                self.owner.do(f"revoke {privilege} on {target} from {self.role}")
                yield f"{privilege} on {target}"
                self.owner.do(f"grant {privilege} on {target} to {self.role}")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Every statement that goes through the store from here on, with its first parameters."""
    found: Sent = {}
    for name in ("rows", "one", "do", "stream"):
        plain = getattr(Transaction, name)

        def noted(
            self: Transaction,
            statement: str,
            params: Mapping[str, Any] | None = None,
            _plain: Any = plain,
            **how: Any,
        ) -> Any:
            found.setdefault(self._statements[statement], params or {})
            return _plain(self, statement, params, **how)

        monkeypatch.setattr(Transaction, name, noted)
    return found


def run_everything(granted: Granted, backend: Backend) -> None:
    """Each job by tick, by request, by hand and dry; scrapes; re-arming."""
    cli = CommandLine(granted.url, **granted.settings)
    for job in SCHEDULED:
        policy = parse_policy(POLICY.format(job=job), "policy.toml")
        for each in (policy, policy, unguarded(policy)):
            with closing(granted.process(each)) as process:
                granted.owner.do("update maintenance.schedule set last_slot = last_slot - 1")
                for part in list(frame.tick(process, job)):
                    assert frame.work(process, *part) == []
    granted.owner.do(
        "insert into maintenance.requests (id, job, requested_by, requested_at)"
        " select gen_random_uuid(), j, 'ada', (extract(epoch from now()) * 1000)::bigint - 60000"
        f" from unnest(array{[*JOBS]}) j"
    )
    policy = parse_policy(POLICY.format(job="reap"), "policy.toml")
    with closing(granted.process(policy)) as process:
        for part in list(frame.poll(process, timedelta(minutes=1))):
            assert frame.work(process, *part) == []
    for job in JOBS:
        worked(cli.run(*command(job)))
        if job not in WITHOUT_SCOPES:
            worked(cli.run(*command(job), "--dry-run"))
            worked(cli.run(*command(job), "--override", "all"))
            worked(cli.run(*command(job, "--all-scopes", "--yes"), "--override", "all"))
    # Where there is something to warn of, it is written down.
    worked(cli.run("audit-memory", **CANNOT_WRITE))
    scrape(granted)
    if backend == "postgres":
        granted.owner.do("update maintenance.session_releases set state = 'dead'")
        worked(cli.run("releases", "rearm", "--state", "dead", "--scope", "s"))


def scrape(granted: Granted) -> None:
    policy = parse_policy(POLICY.format(job="reap"), "policy.toml")
    with closing(Readings(granted.process(policy))) as readings:
        wait_until(lambda: readings.known().up, "the database is up")
        wait_until(lambda: readings.known().terminal is not None, "finished rows are counted")
        jobs = {*PREVIEWED, "release_sessions", "drain_harvest"}
        wait_until(lambda: readings.known().overdue.keys() == jobs, "every backlog is known")
        wait_until(lambda: readings.known().present is not None, "the present is known")


def breaks_without(granted: Granted, sent: Sent) -> dict[str, bool]:
    """By each privilege, whether any statement needs it."""
    found = {}
    with psycopg.connect(granted.url, autocommit=True) as connection:
        connection.execute("set search_path = pg_catalog, pg_temp")
        for privilege in granted.revoked():
            found[privilege] = any(_is_refused(connection, *each) for each in sent.items())
    return found


def _is_refused(
    connection: psycopg.Connection[Any], statement: bytes, params: Mapping[str, Any]
) -> bool:
    try:
        connection.execute(b"explain " + statement, params)
    except InsufficientPrivilege:
        return True
    except psycopg.Error:
        # What cannot be explained, such as a lock, proves nothing.
        return False
    return False


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_worker(
    plain_ledger: tuple[str, Database],
    sent: Sent,
    backend: Backend,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Everything works, and each single privilege is needed."""
    with transcript_system() as system:
        settings: dict[str, str] = {"MAINT_RELEASE_BACKEND": backend}
        if backend == "http":
            settings["MAINT_RELEASE_URL"] = system.template
        with closing(Granted(plain_ledger[0], **settings)) as granted:
            granted.fill()

            run_everything(granted, backend)

            found = all_went_well(granted, caplog)
            assert {run["job"] for run in found} >= {*SCHEDULED, "audit_memory"}
            needed = breaks_without(granted, sent)
    assert [privilege for privilege, is_needed in needed.items() if not is_needed] == []
    assert len(needed) > 40


def test_an_exporter(plain_ledger: tuple[str, Database], sent: Sent) -> None:
    with closing(Granted(plain_ledger[0], "--for", "exporter")) as granted:
        granted.fill()

        scrape(granted)

        # WHY not the version: only what asks whether it may work looks at it.
        needed = breaks_without(granted, sent)
        del needed['select on "maintenance"."schema_migrations"']
    assert [privilege for privilege, is_needed in needed.items() if not is_needed] == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_operator(plain_ledger: tuple[str, Database], backend: Backend) -> None:
    """Every command but `migrate` finds what it needs."""
    settings: dict[str, str] = {"MAINT_RELEASE_BACKEND": backend}
    with transcript_system() as system:
        if backend == "http":
            settings["MAINT_RELEASE_URL"] = system.template
        with closing(Granted(plain_ledger[0], "--for", "operator", **settings)) as granted:
            granted.fill()
            cli = CommandLine(granted.url, **settings)
            for job in JOBS:
                worked(cli.run(*command(job)))
                if job not in WITHOUT_SCOPES:
                    worked(cli.run(*command(job), "--dry-run"))
                if job != "housekeeping":
                    worked(cli.run(*command(job), "--override", "all", "--enqueue"))
            for arguments in (
                ("pause", "reap", "--scope", "s", "--reason", "r"),
                ("resume", "reap", "--scope", "s"),
                ("holds", "place", "s", "h", "--reason", "r"),
                ("holds", "list"),
                ("history",),
                ("history", "--actions"),
                ("status",),
                ("scopes", "--counts"),
                ("agents", "list", "--scope", "s"),
                ("export", "--with-checkpoints", "--with-sessions"),
                ("import", "-"),
                ("releases", "list"),
                ("releases", "rearm", "--state", "dead", "--scope", "s"),
            ):
                worked(cli.run(*arguments))


def test_whoever_only_asks(plain_ledger: tuple[str, Database]) -> None:
    """And not even that without its one privilege."""
    with closing(Granted(plain_ledger[0], "--for", "enqueue")) as granted:
        assert len(granted.statements) == 2
        cli = CommandLine(granted.url)
        worked(cli.run(*command("reap"), "--enqueue"))
        for privilege in granted.revoked():
            assert cli.run(*command("reap"), "--enqueue").code == 2, privilege


def test_a_server_that_writes_rejections(plain_ledger: tuple[str, Database]) -> None:
    insert = (
        "insert into maintenance.harvest_rejections"
        " (event_id, scope, session_id, code, detail, occurred_at)"
        " values ('e', 's', 't', 'abc', 'd', 1) on conflict do nothing"
    )
    with closing(Granted(plain_ledger[0], "--for", "server")) as granted:
        assert len(granted.statements) == 2
        with psycopg.connect(granted.url, autocommit=True) as connection:
            for _ in range(2):
                connection.execute(insert.encode())
            for privilege in granted.revoked():
                with pytest.raises(InsufficientPrivilege):
                    connection.execute(insert.encode())
                assert privilege


@pytest.mark.parametrize("name", NAMES)
def test_any_name(plain_ledger: tuple[str, Database], name: str) -> None:
    """The role has what was printed for it, and the statements are no more than grants."""
    role = f"{name} {os.getpid()}"
    with psycopg.connect(plain_ledger[0], autocommit=True) as owner:
        owner.execute(f"create role {quoted(role)}".encode())
        try:
            for statement in printed(None, role):
                owner.execute(statement.encode())
            [held] = owner.execute(
                "select has_table_privilege(%s, 'public.background_agents', 'delete')", (role,)
            ).fetchone() or [None]
            assert held is True
        finally:
            owner.execute(f"drop owned by {quoted(role)}".encode())
            owner.execute(f"drop role {quoted(role)}".encode())


@pytest.mark.parametrize(
    "role",
    [
        *("", "public", "PUBLIC", "none", "pg_monitor", "two\nlines", "x" * 64),
        *("current_user", "Current_User", "session_user", "CURRENT_ROLE"),
    ],
)
def test_what_is_no_role_of_yours(role: str) -> None:
    """To GRANT these mean everybody, nobody, somebody else or another name."""
    assert "role" in CommandLine(None).refusal("grants", "--role", role)


def test_wrong_usage() -> None:
    cli = CommandLine(None)
    assert "--role" in cli.refusal("grants")
    assert "everything" in cli.refusal("grants", "--role", "x", "--for", "everything")


def test_another_schema_and_the_standbys() -> None:
    """From the settings alone; no database is asked."""
    statements = printed(
        "postgresql://127.0.0.1:1/nowhere",
        "sema",
        MAINT_LEDGER_SCHEMA="Ledger",
        MAINT_REPLICATION_LAG_MAX="30s",
    )

    assert 'grant usage on schema "Ledger" to "sema";' in statements
    assert any(' on "Ledger"."background_agents" to ' in each for each in statements)
    assert not any("public" in each for each in statements)
    assert statements[-1] == 'grant pg_read_all_stats to "sema";'


def test_as_one_document() -> None:
    found = CommandLine(None).json("grants", "--role", "sema", "--for", "server")

    assert found == {
        "role": "sema",
        "for": "server",
        "tables": [
            {"schema": "maintenance", "table": "harvest_rejections", "privileges": ["INSERT"]}
        ],
        "statements": [
            'grant usage on schema "maintenance" to "sema";',
            'grant insert on "maintenance"."harvest_rejections" to "sema";',
        ],
    }


@pytest.mark.parametrize("layout", ["partitioned", "view"])
def test_a_ledger_in_another_layout(servers: Any, layout: Any) -> None:
    """What is named by the statements is granted; nothing of what is behind it is needed."""
    url, database = servers.ledger("18", layout)
    schema = database.statements.ledger_schema
    role = f"narrow_{os.getpid()}"
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(f"create role {role} login password '{SECRET}'".encode())
        try:
            for statement in printed(None, role, MAINT_LEDGER_SCHEMA=schema):
                owner.execute(statement.encode())
            cli = CommandLine(
                make_conninfo(url, user=role, password=SECRET), MAINT_LEDGER_SCHEMA=schema
            )
            for job in JOBS:
                if job not in WITHOUT_SCOPES:
                    worked(cli.run(*command(job, "--all-scopes", "--yes"), "--override", "all"))
        finally:
            owner.execute(f"drop owned by {role}".encode())
            owner.execute(f"drop role {role}".encode())
