"""Each command, tick, request and scrape under a role that has what `store.needs` lists.

With exactly that each of them works; with any of it missing, a command is refused before it has
changed anything.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from config.policy import Policy, parse_policy
from config.settings import load_settings
from store import needs, preflight
from store.database import Database
from store.errors import StoreUnusable
from store.needs import Needs
from store.release_sessions import BACKENDS, Backend
from tests.e2e.command_line import SECRET, CommandLine, Ended
from tests.e2e.placed import LONG_AGO, Ledger
from tests.transcript_system import transcript_system
from tests.waiting import wait_until
from worker import frame
from worker.context import Process
from worker.jobs import JOBS
from worker.readings import Readings
from worker.schedule import entries

ROLE = f"narrow_{os.getpid()}"
SCHEDULED = tuple(entries({}))
PREVIEWED = ("reap", "flip_stale_running", "reconcile_parked")
WITHOUT_SCOPES = ("housekeeping", "audit_memory")
ARMS = {
    "reap": ("--max-age", "30d", "--keep", "1"),
    "flip_stale_running": ("--stale-after", "15m"),
    "reconcile_parked": ("--stale-claim-after", "15m"),
}
POLICY = """
[schedule]
{job} = "1m"
[defaults]
max_age = "30d"
keep = 1
stale_running_max_age = "15m"
stale_claim_max_age = "15m"
[guards]
breaker_rows = 2
"""
DENIED = ("permission denied", "lacks the privilege")


class Narrow:
    """A ledger with something for every job to do, and a role that has nothing but what it gets."""

    def __init__(self, url: str) -> None:
        self.owner = Ledger(url)
        self.url = make_conninfo(url, user=ROLE, password=SECRET)
        self.owner.do(
            f"create role {ROLE} login password '{SECRET}';"
            f" grant usage on schema public, maintenance to {ROLE}"
        )

    def close(self) -> None:
        self.owner.do(f"drop owned by {ROLE}; drop role {ROLE}")
        self.owner.close()

    def fill(self) -> None:
        """Rows that are due by every arm, entries, rejections, and what is old enough to prune."""
        ledger = self.owner
        ledger.finished("t1", "t2", "t3", "t4", settled_at=1_500_000_000_000)
        ledger.agent("undated", settled_at=None)
        ledger.agent("seconds", settled_at=1)
        for scope in ("s", "t"):
            for number in range(4):
                ledger.running(f"r{number}", scope=scope)
        ledger.parked("gone", "no such token")
        ledger.parked("late", "late")
        ledger.claimed("claimed", "late")
        ledger.checkpoint("late", expires_at=LONG_AGO)
        ledger.checkpoint("open")
        for handle in ("t1", "t2"):
            ledger.session(f"transcript of {handle}")
        ledger.do(
            "insert into maintenance.session_releases"
            " (scope, session_id, handle, settled_at, run_id, queued_at, not_before)"
            " select 's', 'old ' || n, 'h', 0, gen_random_uuid(), 0, 0"
            " from generate_series(1, 3) n;"
            " insert into public.agent_sessions (scope, session_id, updated_at, content)"
            " values ('s', 'old 1', 0, '{}');"
            " insert into maintenance.harvest_rejections (scope, code) values ('s', 'abc');"
            " insert into maintenance.runs"
            " (id, job, requested_by, overrides, state, started_at, finished_at)"
            " select gen_random_uuid(), 'reap', 'ada', '{}', 'succeeded', n, n"
            " from generate_series(1, 3) n;"
            " insert into maintenance.journal (run_id, batch, at, job, arm, count, scope)"
            " select id, 1, 1, 'reap', 'keep', 1, 's' from maintenance.runs;"
            " insert into maintenance.holds (scope, handle, reason, placed_by, placed_at, ends_at)"
            " values ('s', 't3', 'why', 'ada', 1, null), ('s', 't4', 'why', 'ada', 1, 2);"
            " insert into maintenance.actions (at, actor, action) values (1, 'ada', 'place_hold')"
        )

    def grant(self, needed: Needs) -> None:
        """The role has exactly this."""
        self.owner.do(f"revoke all on all tables in schema public, maintenance from {ROLE}")
        for table, privilege in privileges(needed):
            self.owner.do(f"grant {privilege} on {table} to {ROLE}")

    def contents(self) -> dict[str, object]:
        """Every row of every table."""
        tables = self.owner.query(
            "select schemaname || '.' || tablename as name from pg_tables"
            " where schemaname in ('public', 'maintenance')"
        )
        return {
            str(name): self.owner.query(
                f"select coalesce(md5(string_agg(t::text, '|' order by t::text)), '') as sum"
                f" from {name} t"
            )
            for row in tables
            for name in row.values()
        }


def privileges(needed: Needs) -> list[tuple[str, str]]:
    """Each table with each privilege on it that is needed."""
    versions = ["schema_migrations SELECT"] if needed.own and needed.versioned else []
    listed = [("public", each) for each in needed.ledger]
    listed += [("maintenance", each) for each in (*needed.own, *versions)]
    return [
        (f"{schema}.{table}", privilege)
        for schema, each in listed
        for table, *held in [each.split()]
        for privilege in held
    ]


@pytest.fixture
def narrow(plain_ledger: tuple[str, Database]) -> Iterator[Narrow]:
    with closing(Narrow(plain_ledger[0])) as narrow:
        narrow.fill()
        yield narrow


@pytest.fixture
def elsewhere() -> Iterator[dict[str, str]]:
    """The settings of the back end http, with a system behind it that knows no transcript."""
    with transcript_system() as system:
        yield {"MAINT_RELEASE_BACKEND": "http", "MAINT_RELEASE_URL": system.template}


def command(job: str, *scopes: str) -> tuple[str, ...]:
    over = () if job in WITHOUT_SCOPES else scopes or ("--scope", "s")
    return (job.replace("_", "-"), *over, *ARMS.get(job, ()))


def worked(ended: Ended) -> None:
    said = ended.stdout + ended.stderr
    assert not [each for each in DENIED if each in said], said
    # A breaker that held rows back is what a person is to look at.
    assert ended.code == (1 if "rows alone; look whether" in said else 0), said


def refuses_without_any(narrow: Narrow, needed: Needs, *arguments: str, **settings: str) -> None:
    """Each privilege that is taken away is named, and nothing has changed."""
    cli = CommandLine(narrow.url, **settings)
    narrow.grant(needed)
    before = narrow.contents()
    for table, privilege in privileges(needed):
        narrow.owner.do(f"revoke {privilege} on {table} from {ROLE}")
        problem = cli.refusal(*arguments)
        assert problem.startswith(f"role {ROLE} lacks the privilege {privilege} on {table}; grant")
        narrow.owner.do(f"grant {privilege} on {table} to {ROLE}")
    assert narrow.contents() == before


@pytest.mark.parametrize("job", [job for job in JOBS if job != "release_sessions"])
def test_a_job_by_hand(narrow: Narrow, tmp_path: Path, job: str) -> None:
    """Guarded, with its breakers open, with every guard lifted, and over all scopes."""
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY.format(job="reap"), encoding="utf-8")
    needed = needs.by_hand(job, "postgres")
    refuses_without_any(narrow, needed, *command(job))
    cli = CommandLine(narrow.url, MAINT_POLICY_FILE=str(policy))
    narrow.grant(needed)
    everywhere = command(job, "--all-scopes", "--yes")

    for arguments in (command(job), command(job), everywhere):
        worked(cli.run(*arguments))
    if job not in WITHOUT_SCOPES:
        worked(cli.run(*command(job), "--override", "all"))
        worked(cli.run(*everywhere, "--override", "all"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_release_by_hand(narrow: Narrow, elsewhere: dict[str, str], backend: Backend) -> None:
    """Where the ledger holds no transcript to delete, nothing of it need be changed."""
    settings = elsewhere if backend == "http" else {"MAINT_RELEASE_BACKEND": backend}
    needed = needs.by_hand("release_sessions", backend)
    refuses_without_any(narrow, needed, *command("release_sessions"), **settings)

    worked(CommandLine(narrow.url, **settings).run(*command("release_sessions")))

    left = narrow.owner.query("select state from maintenance.session_releases")
    assert [row["state"] for row in left if row["state"] == "pending"] == []
    assert any(each.startswith("agent_sessions SELECT U") for each in needed.ledger) == (
        backend == "postgres"
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("job", [job for job in JOBS if job not in WITHOUT_SCOPES])
def test_a_dry_run(narrow: Narrow, elsewhere: dict[str, str], job: str, backend: Backend) -> None:
    if backend != "postgres" and job != "release_sessions":
        return
    settings = elsewhere if backend == "http" else {"MAINT_RELEASE_BACKEND": backend}
    needed = needs.dry_run(job, backend)
    refuses_without_any(narrow, needed, *command(job), "--dry-run", **settings)
    cli = CommandLine(narrow.url, **settings)
    before = narrow.contents()

    for scopes in ((), ("--all-scopes",)):
        worked(cli.run(*command(job, *scopes), "--dry-run"))
        worked(cli.run(*command(job, *scopes), "--dry-run", "--override", "all"))

    assert narrow.contents() == before


@pytest.mark.parametrize("job", ["reap", "flip_stale_running", "reconcile_parked"])
def test_a_table_that_is_locked_as_a_whole_is_no_question_of_privileges(
    narrow: Narrow, job: str
) -> None:
    narrow.grant(needs.by_hand(job, "postgres"))
    cli = CommandLine(narrow.url, MAINT_LOCK_TIMEOUT="100ms")

    with psycopg.connect(narrow.owner.url) as holder:
        holder.execute("lock table public.background_agents in share mode")
        ended = cli.run(*command(job), "--override", "all")

    assert (ended.code, "locked as a whole" in ended.stderr) == (1, True), ended


def process_of(url: str, policy: Policy, **settings: str) -> Process:
    given = {"MAINT_DATABASE_URL": url, "MAINT_SCOPES_PER_PART": "1", **settings}
    return Process(load_settings(given), policy)


def unguarded(policy: Policy) -> Policy:
    guards = replace(policy.guards, sightings=False, outage=False)
    return replace(policy, guards=guards)


def refuses_each(narrow: Narrow, process: Process, needed: Needs) -> None:
    for table, privilege in privileges(needed):
        narrow.owner.do(f"revoke {privilege} on {table} from {ROLE}")
        with pytest.raises(StoreUnusable, match=f"lacks the privilege {privilege} on {table};"):
            preflight.check(process.database, needed)
        narrow.owner.do(f"grant {privilege} on {table} to {ROLE}")
    preflight.check(process.database, needed)


def all_went_well(narrow: Narrow, caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The runs that are on record; none is wrong, and no error was logged."""
    logged = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert [(record.message, getattr(record, "error", None)) for record in logged] == []
    found = narrow.owner.query(
        "select job, state, error from maintenance.runs where started_at > 9"
    )
    assert [run for run in found if run["state"] != "succeeded" or run["error"]] == []
    return found


@pytest.mark.parametrize("job", SCHEDULED)
def test_a_tick_and_its_parts(narrow: Narrow, caplog: pytest.LogCaptureFixture, job: str) -> None:
    """Twice, for the second one goes by what the first one noted; then without the guards."""
    policy = parse_policy(POLICY.format(job=job), "policy.toml")
    needed = needs.scheduled([job], "postgres")
    narrow.grant(needed)

    for each in (policy, policy, unguarded(policy)):
        with closing(process_of(narrow.url, each)) as process:
            refuses_each(narrow, process, needed)
            narrow.owner.do("update maintenance.schedule set last_slot = last_slot - 1")
            for part in list(frame.tick(process, job)):
                assert frame.work(process, *part) == []

    assert {run["job"] for run in all_went_well(narrow, caplog)} == {job}


def _placed(narrow: Narrow, job: str, *over: str) -> str:
    """The id of a new request; housekeeping is no command's to ask for, but may stand there."""
    if job == "housekeeping":
        [row] = narrow.owner.query(
            "insert into maintenance.requests (id, job, requested_by, requested_at)"
            " values (gen_random_uuid(), 'housekeeping', 'ada',"
            " (extract(epoch from now()) * 1000)::bigint) returning id::text"
        )
        return str(row["id"])
    arguments = (*command(job, *over), "--override", "all", "--enqueue")
    return str(CommandLine(narrow.url).json(*arguments)["request_id"])


@pytest.mark.parametrize("job", [*JOBS])
def test_a_request_and_its_taking(
    narrow: Narrow, caplog: pytest.LogCaptureFixture, job: str
) -> None:
    """Put by a role that may do nothing else; taken at once, and by the poll."""
    if job != "housekeeping":
        refuses_without_any(narrow, needs.ENQUEUE, *command(job), "--enqueue")
    ids = [_placed(narrow, job, *over) for over in (("--scope", "s"), ("--all-scopes", "--yes"))]
    needed = needs.requested([job], "postgres")
    narrow.grant(needed)

    with closing(process_of(narrow.url, Policy.empty())) as process:
        refuses_each(narrow, process, needed)
        parts = list(frame.take(process, UUID(ids[0])))
        narrow.owner.do("update maintenance.requests set requested_at = requested_at - 60000")
        parts += frame.poll(process, timedelta(minutes=1))
        for part in parts:
            assert frame.work(process, *part) == []
        assert list(frame.poll(process, timedelta(minutes=1))) == []

    assert [run["job"] for run in all_went_well(narrow, caplog)] == [job, job]


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (("releases", "list"), needs.RELEASES),
        (("releases", "rearm", "--state", "dead", "--scope", "s"), needs.REARM),
        (("restore", "--list"), needs.RESTORABLE),
        (("erase", "--scope", "s", "--yes"), needs.ERASE),
        (("holds", "list"), needs.HOLDS),
        (("holds", "place", "s", "--reason", "why"), needs.PLACE_HOLD),
        (("pause", "reap", "--scope", "s"), needs.PAUSE),
        (("resume", "all"), needs.RESUME),
        (("history",), needs.HISTORY),
        (("history", "--actions"), needs.ACTIONS),
        (("status",), needs.STATUS),
        (("export",), needs.reading("background_agents")),
        (("import", "-"), needs.IMPORT),
        (("scopes", "--counts"), needs.reading("background_agents")),
        (("agents", "list", "--scope", "s"), needs.reading("background_agents")),
    ],
    ids=lambda each: " ".join(each[:2]) if isinstance(each, tuple) else "",
)
def test_any_other_command(narrow: Narrow, arguments: tuple[str, ...], needed: Needs) -> None:
    narrow.owner.do(
        "update maintenance.session_releases set state = 'dead' where session_id = 'old 1'"
    )
    refuses_without_any(narrow, needed, *arguments)

    worked(CommandLine(narrow.url).run(*arguments))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_row_restored(narrow: Narrow, backend: Backend, elsewhere: dict[str, str]) -> None:
    narrow.owner.finished("comes back")
    narrow.owner.session("transcript of comes back")
    settings = elsewhere if backend == "http" else {"MAINT_RELEASE_BACKEND": backend}
    narrow.owner.do(
        "with gone as (delete from public.background_agents a where handle = 'comes back'"
        " returning to_jsonb(a.*) as record)"
        " insert into maintenance.session_releases (scope, session_id, handle, settled_at, run_id,"
        " queued_at, not_before, record, restorable_until)"
        " select 's', record ->> 'session_id', 'comes back', 1, gen_random_uuid(), 1, 1, record,"
        f" {2**62} from gone"
    )
    arguments = ("restore", "s", "comes back")
    refuses_without_any(narrow, needs.restore(backend), *arguments, **settings)

    worked(CommandLine(narrow.url, **settings).run(*arguments))


def test_a_hold_released(narrow: Narrow) -> None:
    [row] = narrow.owner.query("select min(id)::text as id from maintenance.holds")
    arguments = ("holds", "release", str(row["id"]))
    refuses_without_any(narrow, needs.RELEASE_HOLD, *arguments)

    worked(CommandLine(narrow.url).run(*arguments))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_scrape(narrow: Narrow, backend: Backend, elsewhere: dict[str, str]) -> None:
    """Every figure is known, the slow ones as well."""
    settings = elsewhere if backend == "http" else {"MAINT_RELEASE_BACKEND": backend}
    policy = parse_policy(POLICY.format(job="reap"), "policy.toml")
    process = process_of(narrow.url, policy, **settings)
    needed = needs.exporter(backend, PREVIEWED)
    narrow.grant(needed)
    refuses_each(narrow, process, needed)
    process.close()

    with closing(Readings(process)) as readings:
        wait_until(lambda: readings.known().up, "the database is up")
        wait_until(lambda: readings.known().terminal is not None, "finished rows are counted")
        jobs = {*PREVIEWED, "release_sessions", "drain_harvest"}
        wait_until(lambda: readings.known().overdue.keys() == jobs, "every backlog is known")
        wait_until(lambda: readings.known().present is not None, "the present is known")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_worker_is_ready_with_exactly_what_it_does(
    narrow: Narrow, backend: Backend, elsewhere: dict[str, str]
) -> None:
    """Its ticks, operators' requests of every job, and its scrapes."""
    settings = elsewhere if backend == "http" else {"MAINT_RELEASE_BACKEND": backend}
    process = process_of(narrow.url, Policy.empty(), **settings)
    needed = needs.worker(SCHEDULED, PREVIEWED, backend)
    narrow.grant(needed)
    refuses_each(narrow, process, needed)
    process.close()

    with closing(Readings(process)) as readings:
        wait_until(lambda: readings.why_not_ready() is None, "it is ready")
    for parts in (
        needs.scheduled(SCHEDULED, backend),
        needs.requested(JOBS, backend),
        needs.exporter(backend, PREVIEWED),
    ):
        assert {*privileges(parts)} <= {*privileges(needed)}
    narrow.owner.do(f"revoke update on maintenance.failing_scopes from {ROLE}")
    with closing(Readings(process)) as readings:
        wait_until(
            lambda: "UPDATE on maintenance.failing_scopes" in str(readings.why_not_ready()),
            "it says what is missing",
        )
