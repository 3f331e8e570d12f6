"""Each fault is induced for real, found by its own line, and gone once the remedy was run."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from store.database import Database
from store.diagnosis import NEEDING_THE_DATABASE, Finding
from store.diagnosis.schema import own_columns
from store.grants import statements
from store.indexes import create_missing_indexes
from store.migrate import shipped
from store.needs import DOCTOR, exporter
from tests.conftest import Servers
from tests.ledgers import VERSIONS, Layout, fresh_database
from tests.servers import postgres_15_bin, standby_of, throwaway_postgres
from tests.store.diagnosed import NEEDS, SCHEDULE, Diagnosed, Findings, spoilt
from tests.waiting import wait_until
from worker.readings import PREVIEWED_JOBS

NOW = "(extract(epoch from clock_timestamp()) * 1000)::bigint"
ROLE = f"doctored_{os.getpid()}"
Make = Callable[..., Diagnosed]


@contextmanager
def made(url: str, layout: Layout = "plain") -> Iterator[Diagnosed]:
    with fresh_database(url, f"sema_doctor_{os.getpid()}") as fresh:
        yield Diagnosed(fresh, layout)


@pytest.fixture(params=VERSIONS, ids=lambda v: f"pg{v}")
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sound(servers: Servers, version: str) -> Iterator[Diagnosed]:
    """A plain ledger with nothing wrong."""
    with made(servers.url(version)) as database:
        yield database


@pytest.mark.parametrize("layout", ["plain", "partitioned", "view"])
def test_nothing_is_wrong(servers: Servers, version: str, layout: Layout) -> None:
    """Every check is made and ok; of a view's indexes nothing can be said."""
    with made(servers.url(version), layout) as database:
        database.agents(3)
        found = database.look()

    assert {check for check in found if check != "database"} == {*NEEDING_THE_DATABASE}
    bad = spoilt(found)
    if layout == "view":
        for check in ("indexes", "heartbeat"):
            assert [finding.state for finding in bad.pop(check)] == ["not made"]
    assert bad == {}


def test_the_columns_of_the_own_tables_are_those_that_migrate_makes(sound: Diagnosed) -> None:
    """They are read off the migrations, so each is to be written in a form that is understood."""
    tables: dict[str, dict[str, str]] = {}
    for table, column, kind in sound.query(
        "select c.relname, a.attname, format_type(a.atttypid, null)"
        " from pg_class c join pg_attribute a on a.attrelid = c.oid"
        " where c.relnamespace = 'maintenance'::regnamespace and c.relkind = 'r'"
        " and a.attnum > 0 and not a.attisdropped and c.relname <> 'schema_migrations'"
    ):
        tables.setdefault(table, {})[column] = kind

    assert own_columns() == tables


# What is done to the database; the check that finds it, as what, and some of its words.
MENDED_BY_SQL = {
    "settings idle": (
        "alter database {name} set idle_in_transaction_session_timeout = 0",
        ("settings", "warning", "idle_in_transaction_session_timeout is 0"),
    ),
    "autovacuum ledger": (
        "alter table public.background_agents set (autovacuum_enabled = false)",
        ("autovacuum", "warning", "off for public.background_agents"),
    ),
    "autovacuum own": (
        "alter table maintenance.journal set (autovacuum_enabled = off)",
        ("autovacuum", "warning", "off for maintenance.journal"),
    ),
    "fillfactor": (
        "alter table public.background_agents set (fillfactor = 100)",
        ("fillfactor", "warning", "has fillfactor 100"),
    ),
    "fillfactor unset": (
        "alter table public.background_agents reset (fillfactor)",
        ("fillfactor", "warning", "has fillfactor 100"),
    ),
    "text for a time": (
        "alter table public.background_agents alter column updated_at type text",
        ("columns", "error", "background_agents.updated_at is text; bigint is expected"),
    ),
    "integer for a time": (
        "alter table public.checkpoints alter column expires_at type integer",
        ("columns", "error", "checkpoints.expires_at is integer; bigint is expected"),
    ),
    "json for jsonb": (
        (
            "alter table public.checkpoints alter column content drop default,"
            " alter column content type json"
        ),
        ("columns", "error", "checkpoints.content is json; jsonb is expected"),
    ),
    "own column's type": (
        "alter table maintenance.journal alter column count type integer",
        ("columns", "error", "maintenance.journal.count is integer; bigint is expected"),
    ),
    "index over updated_at": (
        "create index mine on public.background_agents (scope, updated_at)",
        ("heartbeat", "warning", "index mine on background_agents names updated_at"),
    ),
    "index over an expression": (
        "create index mine on public.background_agents ((rev + 1))",
        ("heartbeat", "warning", "index mine on background_agents names rev"),
    ),
    "predicate of an index": (
        "create index mine on public.background_agents (scope) where updated_at > 5",
        ("heartbeat", "warning", "index mine on background_agents names updated_at"),
    ),
    "included in an index": (
        "create index mine on public.background_agents (scope) include (rev)",
        ("heartbeat", "warning", "index mine on background_agents names rev"),
    ),
    "constraint over rev": (
        "alter table public.background_agents add constraint mine unique (scope, handle, rev)",
        ("heartbeat", "warning", "index mine on background_agents names rev"),
    ),
    "own index unfinished": (
        (
            "update pg_index set indisvalid = false"
            " where indexrelid = 'maintenance.journal_by_run'::regclass"
        ),
        ("own indexes", "warning", "never finished: journal_by_run"),
    ),
    "read-only by default": (
        "alter database {name} set default_transaction_read_only = on",
        ("writable", "error", "default_transaction_read_only is on"),
    ),
    "statistics off": (
        "alter database {name} set track_counts = off",
        ("settings", "warning", "track_counts is off"),
    ),
}


def _others(bad: Findings, check: str) -> set[str]:
    """In which states the other checks are."""
    return {finding.state for name, found in bad.items() if name != check for finding in found}


@pytest.mark.parametrize("fault", MENDED_BY_SQL)
def test_a_fault_whose_remedy_is_sql(sound: Diagnosed, fault: str) -> None:
    """The line names it; what it says to run makes it go away, and nothing else was wrong."""
    statement, (check, state, said) = MENDED_BY_SQL[fault]
    sound.do(statement.format(name=sound.name))

    bad = spoilt(sound.look())

    assert _others(bad, check) <= {"not made"}, bad
    [finding] = bad[check]
    assert finding.state == state
    assert said in finding.found
    if fault == "statistics off":
        # The server is innocent here: only this database has it off.
        sound.do(f"alter database {sound.name} reset track_counts")
    else:
        sound.mend([finding])
    assert spoilt(sound.look()) == {}


# As above; here the remedy is no SQL, or brings nothing back that is gone.
FOUND = {
    "column gone": (
        "alter table public.checkpoints drop column expires_at",
        ("columns", "error", "public.checkpoints has no column expires_at"),
    ),
    "own column gone": (
        "alter table maintenance.journal drop column cause",
        ("columns", "error", "maintenance.journal has no column cause"),
    ),
    "table gone": (
        "drop table public.agent_sessions",
        ("tables", "error", "schema public has no agent_sessions"),
    ),
    "own table gone": (
        "drop table maintenance.breakers",
        ("tables", "error", "schema maintenance has no breakers"),
    ),
    "not a table": (
        (
            "alter table public.agent_sessions rename to kept;"
            " create materialized view public.agent_sessions as select * from public.kept"
        ),
        ("tables", "error", "public.agent_sessions is a materialized view"),
    ),
    "index gone": (
        "drop index public.background_agents_parked",
        ("indexes", "warning", "missing: background_agents_parked;"),
    ),
    "own index gone": (
        "drop index maintenance.journal_by_run",
        ("own indexes", "warning", "missing: journal_by_run;"),
    ),
    "migration not applied": (
        f"delete from maintenance.schema_migrations where version = {shipped()[-1].version}",
        ("migrations", "error", f"not applied: {shipped()[-1].version:04}_"),
    ),
    "migration changed": (
        "update maintenance.schema_migrations set checksum = 'x' where version = 2",
        ("migrations", "error", "migration 0002 of this release is not the one"),
    ),
    "migration of a newer release": (
        (
            "insert into maintenance.schema_migrations (version, name, checksum)"
            " values (9000, 'later', 'x')"
        ),
        ("migrations", "warning", "a newer release was here and applied 9000"),
    ),
    "keys compared under another collation": (
        'alter table public.checkpoints alter column scope type text collate "default"',
        ("collations", "warning", "background_agents.scope (C) and checkpoints.scope (default)"),
    ),
    "approvals gone": (
        (
            "delete from public.checkpoints; insert into public.background_agents"
            " (scope, handle, rev, status, owner, session_scoped, writer_id, spawned_at,"
            " updated_at, parked_checkpoint_token)"
            " values ('s', 'h', 1, 'parked', 'o', true, 'w', 1, 1, 'gone')"
        ),
        ("approvals", "error", "checkpoints is empty while parked rows name approvals"),
    ),
    "outbox dead": (
        (
            "insert into maintenance.session_releases"
            " (scope, session_id, handle, settled_at, run_id, queued_at, not_before, state)"
            " select 's', 't', 'h', 0, gen_random_uuid(), 0, 0, 'dead' from generate_series(1, 3)"
        ),
        ("outbox", "warning", "given up: 3 rows"),
    ),
    "outbox suspect": (
        (
            "insert into maintenance.session_releases"
            " (scope, session_id, handle, settled_at, run_id, queued_at, not_before, state)"
            " values ('s', 't', 'h', 0, gen_random_uuid(), 0, 0, 'suspect')"
        ),
        ("outbox", "warning", "are kept: 1 row"),
    ),
    "no beat ever": (
        "delete from maintenance.schedule",
        ("ticks", "warning", "no beat has been at work here"),
    ),
    "one job never": (
        "delete from maintenance.schedule where job = 'reap'",
        ("ticks", "error", "reap has never ticked, others have"),
    ),
    "no beat any more": (
        (
            f"update maintenance.schedule set last_slot = {NOW} - 181000"
            " where job = 'reconcile_parked'"
        ),
        ("ticks", "error", ": no beat is at work, or no worker takes its ticks"),
    ),
    "ticks and is not done": (
        f"update maintenance.runs set finished_at = {NOW} - 800000 where job = 'drain_harvest'",
        ("ticks", "warning", "it ticks and is not done"),
    ),
}


@pytest.mark.parametrize("fault", FOUND)
def test_a_fault(sound: Diagnosed, fault: str) -> None:
    """It is found by its own line, with something to do about it."""
    statement, (check, state, said) = FOUND[fault]
    sound.do(statement)

    bad = spoilt(sound.look())

    assert _others(bad, check) <= {"not made"}, bad
    [finding] = bad[check]
    assert (finding.state, said in finding.found) == (state, True), finding
    assert finding.remedies


NOTHING_TO_SAY = {
    "the ledger": (
        "drop table public.background_agents, public.checkpoints, public.agent_sessions",
        {"collations", "indexes", "heartbeat", "fillfactor", "autovacuum", "dead rows"},
    ),
    "the worker's own": (
        "drop schema maintenance cascade",
        {"own indexes", "autovacuum", "dead rows"},
    ),
    "both": (
        (
            "drop table public.background_agents, public.checkpoints, public.agent_sessions;"
            " drop schema maintenance cascade"
        ),
        {
            *("columns", "collations", "privileges", "indexes", "own indexes", "heartbeat"),
            *("fillfactor", "autovacuum", "dead rows"),
        },
    ),
}


@pytest.mark.parametrize("family", NOTHING_TO_SAY)
def test_nothing_is_said_of_tables_that_are_not_there(sound: Diagnosed, family: str) -> None:
    """They are one error; whatever else would be asked of them is not vouched for."""
    statement, unseen = NOTHING_TO_SAY[family]
    sound.do(statement)

    bad = spoilt(sound.look())

    assert {f.state for f in bad.pop("tables")} == {"error"}
    assert {finding.state for found in bad.values() for finding in found} == {"not made"}
    for check in unseen:
        [finding] = bad[check]
        assert finding.found.startswith("not looked at: there is no table "), check
    assert {"privileges", "approvals" if family == "the ledger" else "ticks"} <= {*bad}


EXPORTER = exporter("postgres", PREVIEWED_JOBS)


def test_a_role_that_only_reads(sound: Diagnosed) -> None:
    """It is judged by what it is for; that nothing may be written there is no fault."""
    sound.do(
        f"create role {ROLE} login password 'x'",
        *statements(EXPORTER, "public", ROLE),
        f"alter database {sound.name} set default_transaction_read_only = on",
    )
    url = make_conninfo(sound.url, user=ROLE, password="x")
    try:
        found = sound.look(url=url, needed=EXPORTER, purpose="exporter")
        of_a_worker = spoilt(sound.look(url=url))
    finally:
        sound.do(f"drop owned by {ROLE}", f"drop role {ROLE}")

    assert spoilt(found) == {}
    assert found["writable"][0].found.endswith("which is enough: exporter only reads")
    assert found["privileges"][0].found.endswith("has all that is needed for: exporter")
    assert {*of_a_worker} == {"writable", "privileges"}


def test_a_beat_that_is_a_little_late(sound: Diagnosed) -> None:
    """Three periods are allowed, and this is just less."""
    sound.do(f"update maintenance.schedule set last_slot = {NOW} - 1700000 where job = 'reap'")

    assert spoilt(sound.look()) == {}


def test_collations_that_postgres_refuses_to_compare(sound: Diagnosed) -> None:
    """The statement that joins them fails, as the line says."""
    sound.agents(1)
    sound.do('alter table public.checkpoints alter column scope type text collate "POSIX"')

    [finding] = spoilt(sound.look())["collations"]

    assert finding.state == "error"
    assert "background_agents.scope (C) and checkpoints.scope (POSIX)" in finding.found
    with pytest.raises(psycopg.errors.IndeterminateCollation):
        sound.do(
            "select from public.background_agents a join public.checkpoints c on c.scope = a.scope"
        )


# WHY this server: only ICU has such collations, and the other is built without it.
@pytest.mark.parametrize("version", ["15"], indirect=True)
def test_a_collation_that_takes_other_keys_for_the_same(sound: Diagnosed) -> None:
    sound.do(
        "create collation public.vague"
        " (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        "alter table public.agent_sessions alter column session_id type text collate public.vague",
    )

    found = spoilt(sound.look())["collations"]

    assert found[0].state == "error"
    assert "agent_sessions.session_id: a collation that is not deterministic" in found[0].found


def test_an_index_that_was_never_finished(sound: Diagnosed) -> None:
    """`migrate --indexes`, which is the remedy, makes it again."""
    sound.do(
        "update pg_index set indisvalid = false"
        " where indexrelid = 'public.background_agents_running'::regclass"
    )
    [finding] = spoilt(sound.look())["indexes"]
    assert "never finished: background_agents_running;" in finding.found
    assert finding.remedies == ("sema-maintenance migrate --indexes",)

    with Database(sound.url, "public") as database:
        assert [*create_missing_indexes(database)]

    assert spoilt(sound.look()) == {}


def test_an_index_of_a_partitioned_ledger(servers: Servers, version: str) -> None:
    """One over what a heartbeat changes has one line, not one for each partition."""
    with made(servers.url(version), "partitioned") as database:
        database.do(
            "create index mine on public.background_agents (updated_at, scope)",
            "create index part on public.background_agents_2 (rev)",
            "alter table public.background_agents_1 set (fillfactor = 95)",
        )

        bad = spoilt(database.look())

        assert {check: len(found) for check, found in bad.items()} == {
            "heartbeat": 2,
            "fillfactor": 1,
        }
        assert "background_agents_1 has fillfactor 95" in bad["fillfactor"][0].found
        database.mend([*bad["heartbeat"], *bad["fillfactor"]])
        assert spoilt(database.look()) == {}


def test_the_table_behind_a_view(servers: Servers, version: str) -> None:
    with made(servers.url(version), "view") as database:
        database.do(
            "alter table kept.background_agents set (fillfactor = 100, autovacuum_enabled = false)"
        )

        bad = spoilt(database.look())

        assert "kept.background_agents has fillfactor 100" in bad["fillfactor"][0].found
        assert "off for kept.background_agents" in bad["autovacuum"][0].found
        database.mend([*bad["fillfactor"], *bad["autovacuum"]])
        assert {*spoilt(database.look())} == {"indexes", "heartbeat"}


def test_dead_rows(sound: Diagnosed) -> None:
    """Counted by the server's statistics; vacuum, which is the remedy, removes them."""
    sound.do("alter table maintenance.journal set (autovacuum_enabled = off)")
    sound.do(
        "insert into maintenance.journal (run_id, batch, at, job, arm, count)"
        " select gen_random_uuid(), 1, 1, 'reap', 'keep', 1 from generate_series(1, 10001)",
        "delete from maintenance.journal",
    )
    wait_until(lambda: "dead rows" in spoilt(sound.look()), "the statistics know of it")
    [finding] = spoilt(sound.look())["dead rows"]
    assert "maintenance.journal has about 10,001 dead rows and 0 live ones" in finding.found
    assert finding.found.endswith("last vacuumed: never")

    sound.mend([finding])

    wait_until(lambda: "dead rows" not in spoilt(sound.look()), "they are gone")


def test_heartbeats_that_are_not_heap_only(sound: Diagnosed) -> None:
    sound.agents(50, status="'running'", settled_at="null")
    sound.do(
        "create index mine on public.background_agents (updated_at)",
        *["update public.background_agents set updated_at = updated_at + 1"] * 25,
    )
    wait_until(
        lambda: any(
            "were heap-only" in finding.found
            for finding in spoilt(sound.look()).get("fillfactor", ())
        ),
        "the statistics know of it",
    )


def test_a_session_that_is_idle_in_its_transaction(sound: Diagnosed) -> None:
    """Named by process, application and role, without what it asked; the remedy ends it."""
    with psycopg.connect(sound.url, application_name="forgetful") as holder:
        holder.execute("select 'the secret of the query'")
        pid = holder.info.backend_pid
        assert spoilt(sound.look()) == {}

        [finding] = spoilt(sound.look(idle_in_transaction=timedelta(0)))["idle sessions"]

        assert f"session {pid} of forgetful, role " in finding.found
        assert "secret" not in finding.found
        sound.mend([finding])
        with pytest.raises(psycopg.OperationalError):
            holder.execute("select 1")


def test_a_session_that_holds_the_horizon(sound: Diagnosed) -> None:
    with psycopg.connect(sound.url, application_name="slow report") as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("select 1")

        bad = spoilt(sound.look(horizon=timedelta(0)))["horizon"]

        [finding] = [each for each in bad if "slow report" in each.found]
        assert finding.state == "warning"
        sound.mend([finding])
        with pytest.raises(psycopg.OperationalError):
            holder.execute("select 1")


@pytest.fixture(scope="module")
def tunable() -> Iterator[Callable[[str], str]]:
    """Servers with prepared transactions and slots, whose settings may be spoilt."""
    options = {"max_prepared_transactions": "5", "wal_level": "logical", "max_wal_senders": "5"}
    with ExitStack() as stack:
        urls: dict[str, str] = {}

        def url(version: str) -> str:
            if version not in urls:
                programs = postgres_15_bin() if version == "15" else None
                urls[version] = stack.enter_context(throwaway_postgres(programs, options))
            return urls[version]

        yield url


@pytest.fixture
def spoilable(tunable: Callable[[str], str], servers: Servers, version: str) -> Iterator[Diagnosed]:
    servers.url(version)  # WHY: skips where there is none.
    with made(tunable(version)) as database:
        yield database


def test_a_prepared_transaction(spoilable: Diagnosed) -> None:
    spoilable.do("begin; create table public.t (i int); prepare transaction 'it''s open'")
    assert spoilt(spoilable.look()) == {}

    [finding] = spoilt(spoilable.look(horizon=timedelta(0)))["horizon"]

    assert finding.found.startswith("prepared transaction it's open of ")
    spoilable.mend([finding])
    assert spoilt(spoilable.look(horizon=timedelta(0))) == {}


def test_a_replication_slot_that_nobody_uses(spoilable: Diagnosed) -> None:
    spoilable.do("select pg_create_logical_replication_slot('left_behind', 'pgoutput')")

    [finding] = spoilt(spoilable.look())["horizon"]

    assert finding.found.startswith("replication slot left_behind holds back")
    spoilable.mend([finding])
    assert spoilt(spoilable.look()) == {}


def test_autovacuum_off_for_the_whole_server(spoilable: Diagnosed) -> None:
    spoilable.do("alter system set autovacuum = off", "select pg_reload_conf()")
    wait_until(lambda: "settings" in spoilt(spoilable.look()), "the server has it off")

    [finding] = spoilt(spoilable.look())["settings"]

    assert "autovacuum is off for the whole server" in finding.found
    statements = finding.remedies[0].split(";")
    spoilable.do(*(each for each in statements if each.strip()))
    wait_until(lambda: spoilt(spoilable.look()) == {}, "the server has it on again")


def test_a_standby(servers: Servers, version: str) -> None:
    """It cannot be worked on; everything else is looked at there all the same."""
    servers.url(version)
    programs = postgres_15_bin() if version == "15" else None
    with throwaway_postgres(programs) as primary, standby_of(primary, programs) as url:
        with made(primary) as database:
            there = make_conninfo(url, dbname=database.name.strip('"'))
            wait_until(lambda: _is_there(there), "the standby has the ledger")

            bad = spoilt(database.look(url=there))

        assert [*bad] == ["writable"]
        assert bad["writable"][0].found == "this is a standby, which is read-only"


def test_a_standby_that_holds_the_horizon(servers: Servers, version: str) -> None:
    """By its feedback while it is there, and by its slot when it is gone."""
    servers.url(version)
    programs = postgres_15_bin() if version == "15" else None
    with throwaway_postgres(programs) as primary, made(primary) as database:
        with standby_of(primary, programs) as url, psycopg.connect(url, autocommit=True) as there:
            there.execute("alter system set hot_standby_feedback = on")
            there.execute("select pg_reload_conf()")
            wait_until(lambda: _holding(database, "standby "), "its feedback")
            [finding] = _holding(database, "standby ")
            assert "by hot_standby_feedback" in finding.found

            database.do("select pg_create_physical_replication_slot('of_standby')")
            there.execute("alter system set primary_slot_name = 'of_standby'")
            there.execute("select pg_reload_conf()")
            wait_until(lambda: _holding(database, "replication slot of_standby "), "its slot")
            [finding] = _holding(database, "replication slot of_standby ")
            assert finding.found.endswith("and is in use")
            assert spoilt(database.look()) == {}

        wait_until(lambda: spoilt(database.look()) != {}, "the slot is nobody's any more")
        [finding] = spoilt(database.look())["horizon"]
        assert finding.found.startswith("replication slot of_standby holds back")
        assert "used by nobody" in finding.found
        database.mend([finding])
        assert spoilt(database.look()) == {}


def _holding(database: Diagnosed, begins: str) -> list[Finding]:
    """What of that kind holds the horizon back at all."""
    found = spoilt(database.look(horizon_transactions=0)).get("horizon", ())
    return [each for each in found if each.found.startswith(begins)]


def _is_there(url: str) -> bool:
    try:
        with psycopg.connect(url) as connection:
            found = connection.execute("select count(*) from maintenance.runs").fetchone()
    except psycopg.Error:
        return False
    return found == (len(SCHEDULE),)


@pytest.mark.parametrize(
    ("off_s", "state"), [(3, "ok"), (-3, "ok"), (8, "warning"), (-8, "warning"), (70, "error")]
)
def test_a_clock_that_is_off(sound: Diagnosed, off_s: int, state: str) -> None:
    [finding] = sound.look(own_time=lambda: time.time() - off_s)["clock"]

    assert finding.state == state
    assert ("ahead of" if off_s > 0 else "behind") in finding.found


def test_statuses_that_are_unknown(sound: Diagnosed) -> None:
    """In a small ledger each is counted."""
    sound.do("alter table public.background_agents drop constraint background_agents_status_check")
    sound.agents(5)
    sound.agents(3, handle="'x' || n", status="'archived'")

    [finding] = spoilt(sound.look())["statuses"]

    assert "3 rows of status 'archived' (looked at: all 8 rows)" in finding.found


def test_statuses_that_are_unknown_in_a_large_ledger(sound: Diagnosed) -> None:
    """They lie behind all that is looked at, and are told by the planner's statistics."""
    sound.do("alter table public.background_agents drop constraint background_agents_status_check")
    sound.agents(50_000)
    sound.agents(10_000, handle="'x' || n", status="'archived'")
    sound.do("analyze public.background_agents")

    [finding] = spoilt(sound.look())["statuses"]

    assert "of status 'archived' (an estimate) (looked at: 50,000 rows and" in finding.found
    estimate = int(finding.found.split("about ")[1].split(" ")[0].replace(",", ""))
    assert 8_000 < estimate < 12_000


def test_times_that_cannot_be(sound: Diagnosed) -> None:
    sound.agents(2, handle="'sec' || n", settled_at="1")
    sound.agents(1, handle="'far' || n", settled_at=f"{NOW} + 60000")
    sound.agents(1, handle="'run' || n", status="'running'", settled_at="null",
                 updated_at=f"{NOW} + 660000")  # fmt: skip
    sound.agents(1, handle="'ok' || n", status="'running'", settled_at="null",
                 updated_at=f"{NOW} + 540000")  # fmt: skip

    finished, running = spoilt(sound.look())["times"]

    assert "before 2015: 2 rows, in the future: 1 row" in finished.found
    assert running.found.startswith("1 row of the running ones")


def test_finished_rows_that_do_not_say_when(sound: Diagnosed) -> None:
    sound.agents(10_001, settled_at="null")

    [finding] = spoilt(sound.look())["settled"]

    assert finding.found.startswith("more than 10,000 rows finished without settled_at")


@pytest.fixture
def narrow(sound: Diagnosed) -> Iterator[str]:
    """The URL of a role that has exactly what a worker needs."""
    sound.do(f"create role {ROLE} login password 'x'", *statements(NEEDS, "public", ROLE))
    yield make_conninfo(sound.url, user=ROLE, password="x")
    sound.do(f"drop owned by {ROLE}", f"drop role {ROLE}")


def test_the_role_of_a_worker_can_make_every_check(sound: Diagnosed, narrow: str) -> None:
    """Other roles' sessions are another thing: it says so, and how to see them."""
    assert spoilt(sound.look(url=narrow)) == {}

    with psycopg.connect(sound.url):
        [finding] = spoilt(sound.look(url=narrow))["idle sessions"]
        assert "1 session of another role cannot be looked into" in finding.found
        sound.mend([finding])
        assert spoilt(sound.look(url=narrow)) == {}


def test_what_the_doctor_itself_needs(sound: Diagnosed, narrow: str) -> None:
    """With just that no check is left unmade, and what the worker lacks is one error."""
    sound.do(
        f"revoke all on all tables in schema public, maintenance from {ROLE}",
        *statements(DOCTOR, "public", ROLE),
    )

    bad = spoilt(sound.look(url=narrow))

    assert {check: [each.state for each in found] for check, found in bad.items()} == {
        "privileges": ["error"]
    }


@pytest.mark.parametrize(
    "revoked",
    [
        "update on public.checkpoints",
        "insert on maintenance.journal",
        "usage on schema maintenance",
    ],
)
def test_a_privilege_that_is_missing(sound: Diagnosed, narrow: str, revoked: str) -> None:
    sound.do(f"revoke {revoked} from {ROLE}")

    bad = spoilt(sound.look(url=narrow))

    [finding] = bad["privileges"]
    assert finding.state == "error"
    assert finding.found.startswith(f"role {ROLE} lacks ")
    # WHY warnings may be there: a machine that is slow makes a beat or a vacuum late.
    assert "error" not in _others(bad, "privileges")
    sound.mend([finding])
    assert spoilt(sound.look(url=narrow)) == {}


def test_a_view_that_is_read_as_whoever_asks(servers: Servers, version: str) -> None:
    """Privileges on it alone are not enough then."""
    with made(servers.url(version), "view") as database:
        database.do(
            f"create role {ROLE} login password 'x'",
            *statements(NEEDS, database.schema, ROLE),
        )
        narrow = make_conninfo(database.url, user=ROLE, password="x")
        try:
            assert "privileges" not in spoilt(database.look(url=narrow))
            database.do("alter view seen.background_agents set (security_invoker = true)")

            bad = spoilt(database.look(url=narrow))

            [finding] = bad["privileges"]
            assert "SELECT/UPDATE/DELETE on kept.background_agents" in finding.found
            database.mend([finding])
            assert {*spoilt(database.look(url=narrow))} == {"indexes", "heartbeat"}
        finally:
            database.do(f"drop owned by {ROLE}", f"drop role {ROLE}")


def test_rows_that_are_hidden_from_the_role(sound: Diagnosed, narrow: str) -> None:
    sound.do("alter table public.background_agents enable row level security")

    bad = spoilt(sound.look(url=narrow))

    assert [*bad] == ["tables"]
    assert "row-level security of public.background_agents" in bad["tables"][0].found
    sound.mend(bad["tables"])
    assert spoilt(sound.look(url=narrow)) == {}


def test_a_table_that_is_locked_hides_no_other_line(sound: Diagnosed) -> None:
    with psycopg.connect(sound.url) as holder:
        holder.execute("lock table public.checkpoints in access exclusive mode")

        bad = spoilt(sound.look())

    assert {check: [each.state for each in found] for check, found in bad.items()} == {
        "approvals": ["not made"]
    }


def test_a_table_that_takes_too_long_hides_no_other_line(sound: Diagnosed) -> None:
    """Here one is a view that sleeps for a minute."""
    sound.do(
        "alter table public.checkpoints rename to kept",
        "create view public.checkpoints as"
        " select k.* from public.kept k, lateral (select pg_sleep(60)) s",
    )

    bad = spoilt(sound.look(statement_timeout=timedelta(milliseconds=300)))

    assert [each.state for each in bad["approvals"]] == ["not made"]
    assert "statement timeout" in bad["approvals"][0].found
    assert [*bad] == ["approvals"]


def test_a_database_that_goes_away_meanwhile(sound: Diagnosed) -> None:
    """It is an error from then on, and what needs it is named as not made."""

    def own_time() -> float:
        admin = make_conninfo(sound.url, dbname="postgres")
        with psycopg.connect(admin, autocommit=True) as connection:
            connection.execute(f"drop database {sound.name} with (force)".encode())
        return time.time()

    found = sound.look(own_time=own_time)

    assert [each.state for each in found["database"]] == ["ok", "error"]
    before = ("writable", "role")
    assert {name: [e.state for e in found[name]] for name in NEEDING_THE_DATABASE} == {
        name: ["ok"] if name in before else ["not made"] for name in NEEDING_THE_DATABASE
    }


def test_nothing_is_changed(sound: Diagnosed) -> None:
    written = "select sum(n_tup_ins + n_tup_upd + n_tup_del) from pg_stat_user_tables"
    sound.agents(5)
    before = sound.query(written)

    sound.look()

    assert sound.query(written) == before
