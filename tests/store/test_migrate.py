"""A database of release 0.1.0 is brought to this one while its workers write to it."""

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg
from psycopg.rows import dict_row

from store.database import Database
from store.errors import TimedOut
from store.migrate import Migration, Patience, migrate, shipped
from tests.conftest import Servers
from tests.ledgers import VERSIONS, create_own_tables_of_0_1_0, fresh_database
from tests.waiting import wait_until

ROWS = 20_000
# WHY so short a wait: an old worker then has most of its 400 ms left, however slow the machine is.
PATIENT = Patience(lock_wait=timedelta(milliseconds=100), tries=1000)
HASTY = Patience(lock_wait=timedelta(milliseconds=50), pause=timedelta(milliseconds=10), tries=3)
ALL = [1, 2, 3, 4, 5, 6, 7, 8]

_FILL = f"""
insert into maintenance.runs (id, job, slot, requested_by, state, started_at, finished_at)
    select gen_random_uuid(), 'reap', n, 'schedule', 'succeeded', n, n + 5
    from generate_series(1, {ROWS}) n;
insert into maintenance.run_parts (run_id, part, state)
    select id, 0, 'succeeded' from maintenance.runs;
insert into maintenance.session_releases
    (scope, session_id, handle, settled_at, run_id, queued_at, not_before)
    select 's', n::text, n::text, 1, gen_random_uuid(), 1, n from generate_series(1, {ROWS}) n;
"""
_OUTBOX = """
insert into maintenance.session_releases
    (scope, session_id, handle, settled_at, run_id, queued_at, not_before)
    values ('s', 'x', 'x', 1, gen_random_uuid(), 1, 1)
"""
_RUN = """
with run as (
    insert into maintenance.runs (id, job, requested_by, state, started_at)
    values (gen_random_uuid(), 'reap', 'ada', 'running', 1) returning id
)
insert into maintenance.run_parts (run_id, part, state) select id, 0, 'queued' from run
"""
_SHAPE = """
select table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable as line
    from information_schema.columns where table_schema = 'maintenance'
union all select indexdef from pg_indexes where schemaname = 'maintenance'
union all select 'invalid ' || indexrelid::regclass from pg_index where not indisvalid
union all select conrelid::regclass || ' ' || pg_get_constraintdef(oid)
    from pg_constraint where connamespace = 'maintenance'::regnamespace and contype <> 'n'
"""


class Upgrade:
    """A database as release 0.1.0 left it, and what is seen in it."""

    def __init__(self, url: str) -> None:
        self.url = url
        create_own_tables_of_0_1_0(url)

    def connect(self) -> psycopg.Connection[dict[str, Any]]:
        return psycopg.connect(self.url, autocommit=True, row_factory=dict_row)

    def do(self, *statements: str) -> None:
        with closing(self.connect()) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def rows(self, query: str) -> list[dict[str, Any]]:
        with closing(self.connect()) as connection:
            return connection.execute(query.encode()).fetchall()

    def migrate(self, patience: Patience = PATIENT) -> list[int]:
        """The versions that were applied."""
        with closing(Database(self.url)) as database:
            return [each.version for each in migrate(database, patience)]

    def versions(self) -> list[int]:
        query = "select version from maintenance.schema_migrations order by version"
        return [row["version"] for row in self.rows(query)]

    def shape(self) -> list[str]:
        """Every column, index and constraint of the worker's tables, and what is not valid."""
        return sorted(row["line"] for row in self.rows(_SHAPE))

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """A transaction that reads, open until the end of the block, as a dump is."""
        with psycopg.connect(self.url) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute("select 1")
            yield

    @contextmanager
    def outbox_held(self) -> Iterator[None]:
        """A transaction that wrote to the outbox, open until the end of the block."""
        with psycopg.connect(self.url) as connection:
            connection.execute(_OUTBOX.encode())
            yield
            connection.rollback()


@pytest.fixture(params=VERSIONS, ids=lambda version: f"pg{version}")
def empty(servers: Servers, request: pytest.FixtureRequest) -> Iterator[str]:
    with fresh_database(servers.url(request.param), "sema_test_upgrade") as url:
        yield url


@pytest.fixture
def upgrade(empty: str) -> Upgrade:
    return Upgrade(empty)


def test_upgrade_ends_with_what_a_new_database_has(upgrade: Upgrade) -> None:
    assert upgrade.migrate() == ALL[1:]
    assert upgrade.migrate() == []
    with fresh_database(upgrade.url, "sema_test_new") as url:
        with closing(Database(url)) as database:
            migrate(database)
        with psycopg.connect(url) as connection:
            new = sorted(line for (line,) in connection.execute(_SHAPE.encode()))
    assert upgrade.shape() == new
    assert not any("NOT VALID" in line or line.startswith("invalid") for line in new)


def test_old_workers_go_on_during_an_upgrade(upgrade: Upgrade) -> None:
    """Outbox transactions of 0.8 s, and an old worker that gives up a lock after 0.4 s."""
    upgrade.do(_FILL)
    over = threading.Event()
    failed: list[str] = []

    def hold() -> int:
        with closing(upgrade.connect()) as connection:
            count = 0
            while not over.is_set():
                with connection.transaction():
                    connection.execute(_OUTBOX.encode())
                    connection.execute("select pg_sleep(0.8)")
                count += 1
            return count

    def work() -> int:
        with closing(upgrade.connect()) as connection:
            connection.execute("set lock_timeout = '400ms'")
            count = 0
            while not over.is_set():
                for statement in (_RUN, _OUTBOX):
                    try:
                        connection.execute(statement.encode())
                        count += 1
                    except pg.LockNotAvailable:
                        failed.append(statement)
            return count

    with ThreadPoolExecutor(2) as pool:
        held, worked = pool.submit(hold), pool.submit(work)
        try:
            wait_until(
                lambda: upgrade.rows("select 1 from maintenance.runs where slot is null limit 1"),
                "the old worker works",
            )
            applied = upgrade.migrate()
        finally:
            over.set()
        assert held.result() > 0
        assert worked.result() > 0

    assert applied == ALL[1:]
    assert failed == []


def test_upgrade_that_gave_up_changed_nothing(upgrade: Upgrade) -> None:
    """It says who is in the way, and does the rest once that is over."""
    columns = "select count(*) from information_schema.columns where table_name in "
    columns += "('runs', 'run_parts', 'session_releases')"
    before = upgrade.rows(columns)
    with upgrade.outbox_held():
        with pytest.raises(TimedOut) as raised:
            upgrade.migrate(HASTY)
        assert upgrade.versions() == [1, 2]
        assert upgrade.rows(columns) == before
        # Nobody stands behind what gave up.
        upgrade.do("set lock_timeout = '10s'", _OUTBOX)

    assert str(raised.value) == (
        "the worker's own tables are busy: workers write to them, or they are being vacuumed; "
        "run `sema-maintenance migrate` again, or stop the workers for as long as it takes"
    )
    assert upgrade.migrate() == ALL[2:]


@pytest.mark.parametrize("migration", shipped()[1:], ids=lambda migration: migration.name)
def test_what_alters_a_table_in_use_locks_it_first(migration: Migration) -> None:
    """Else it would be waited for in one long turn, with workers' writes behind it."""
    altered = set(re.findall(r"alter table (maintenance\.\w+)(?! validate)\b", migration.text))
    made = set(re.findall(r"create table (maintenance\.\w+)", migration.text))
    locked = re.search(r"^lock table ([^;]+?)\s+in access exclusive", migration.text, re.MULTILINE)
    in_turns = set() if locked is None else set(re.findall(r"maintenance\.\w+", locked[1]))

    assert altered - made <= in_turns


def test_index_build_that_gave_up_is_made_again(upgrade: Upgrade) -> None:
    """A transaction that stays open keeps it from its end; what is half made is not kept."""
    with upgrade.snapshot(), pytest.raises(TimedOut, match="migration 0004 waited in vain"):
        upgrade.migrate(Patience(build_wait=timedelta(milliseconds=50)))
    assert upgrade.versions() == [1, 2, 3]
    assert any(line.startswith("invalid") for line in upgrade.shape())

    assert upgrade.migrate() == ALL[3:]
    assert not any(line.startswith("invalid") for line in upgrade.shape())


def test_two_upgrades_at_once(upgrade: Upgrade) -> None:
    """The second comes while the first builds indexes; each migration is applied by one of them."""
    builds = (
        "select 1 from pg_stat_activity where datname = current_database()"
        " and wait_event_type = 'Lock' and query like 'create index%'"
    )
    with ThreadPoolExecutor(2) as pool:
        with upgrade.snapshot():
            first = pool.submit(upgrade.migrate)
            wait_until(lambda: upgrade.rows(builds), "the first builds")
            with pytest.raises(TimedOut, match="another migration is at work on this database"):
                upgrade.migrate(HASTY)
            second = pool.submit(upgrade.migrate)
        applied = [first.result(60), second.result(60)]

    assert sorted(applied[0] + applied[1]) == ALL[1:]
    assert upgrade.versions() == ALL


def test_two_upgrades_from_the_start(upgrade: Upgrade) -> None:
    with ThreadPoolExecutor(4) as pool:
        applied = list(pool.map(upgrade.migrate, [PATIENT] * 4))

    assert sorted(version for each in applied for version in each) == ALL[1:]


def test_new_database_waits_for_nobody(empty: str) -> None:
    """In a database that is in use, but new to the worker, a dump that runs is not waited for."""
    with psycopg.connect(empty) as dump, closing(Database(empty)) as database:
        dump.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        dump.execute("select 1")
        applied = migrate(database, Patience(build_wait=timedelta(milliseconds=1)))

    assert [each.version for each in applied] == ALL
