"""SIGKILL while rows and transcripts are being deleted: at every moment the three books agree.

Rows that are gone, what the journal counted, and what stands in the outbox or was released are
written in one transaction each; whoever is killed leaves either all of a batch or none of it.
"""

import itertools
import random
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import dict_row

from tests import ledgers
from tests.conftest import Servers
from tests.e2e.processes import Child, environment
from tests.waiting import wait_until

SEED = 20_261_130
DUE = 60_000  # Rows to delete, each with a transcript.
ROUNDS = 6
LEASE_S = 1.0
LONG_AGO = 1_500_000_000_000
POLICY = """
release_delay = "0s"
[defaults]
max_age = "1h"
[[override]]
match = "s7"
max_age = "off"
keep = 40
"""
# Terminal rows of 30 scopes; live rows, some of which share a transcript with one that goes; rows
# too young to go; transcripts of nobody. The triggers see what no statement of ours reports.
LEDGER = f"""
create schema seen;
create table seen.rows (scope text, handle text, status text);
create table seen.talks (scope text, session_id text);
create function seen.row_gone() returns trigger language plpgsql as $$ begin
    insert into seen.rows select scope, handle, status from gone; return null; end $$;
create function seen.talk_gone() returns trigger language plpgsql as $$ begin
    insert into seen.talks select scope, session_id from gone; return null; end $$;

insert into public.background_agents
    (scope, handle, rev, status, owner, session_scoped, writer_id, session_id,
     spawned_at, updated_at, settled_at)
select 's' || n % 30, 'a' || n, 1, (array['completed', 'failed', 'killed'])[1 + n % 3], 'o', false,
    'w', 't' || n, 1, {LONG_AGO} + n, case when n % 50 > 0 then {LONG_AGO} + n end
from generate_series(1, {DUE}) n;

insert into public.background_agents
    (scope, handle, rev, status, owner, session_scoped, writer_id, session_id,
     spawned_at, updated_at)
select 's' || n % 30, 'live' || n, 1, (array['running', 'parked'])[1 + n % 2], 'o', false,
    'w', case when n % 3 = 0 then 't' || n else 'live' || n end, 1, 1
from generate_series(1, 3000) n;

insert into public.background_agents
    (scope, handle, rev, status, owner, session_scoped, writer_id, session_id,
     spawned_at, updated_at, settled_at)
select 's' || n % 30, 'young' || n, 1, 'completed', 'o', false, 'w', 'young' || n, 1, t.now, t.now
from generate_series(1, 2000) n,
    (select (extract(epoch from clock_timestamp()) * 1000)::bigint as now) t;

insert into public.agent_sessions (scope, session_id, updated_at)
select distinct scope, session_id, 1 from public.background_agents;
insert into public.agent_sessions (scope, session_id, updated_at)
select 's' || n % 30, 'nobody' || n, 1 from generate_series(1, 500) n;

create table seen.before as select * from public.background_agents;
create table seen.talks_before as select scope, session_id from public.agent_sessions;
create trigger row_gone after delete on public.background_agents
    referencing old table as gone for each statement execute function seen.row_gone();
create trigger talk_gone after delete on public.agent_sessions
    referencing old table as gone for each statement execute function seen.talk_gone();
"""
BOOKS = """
select
    (select count(*) from seen.before) - (select count(*) from public.background_agents) as gone,
    (select count(*) from seen.rows) as seen_gone,
    (select coalesce(sum(count), 0)::bigint from maintenance.journal
     where job = 'reap' and arm in ('max_age', 'keep')) as counted_gone,
    (select count(*) from maintenance.session_releases) as queued,
    (select coalesce(sum(count), 0)::bigint from maintenance.journal
     where job = 'release_sessions' and arm = 'named') as counted_named,
    (select coalesce(sum(count), 0)::bigint from maintenance.journal
     where job = 'release_sessions' and arm = 'released') as counted_released,
    (select count(*) from seen.talks_before) - (select count(*) from public.agent_sessions)
        as released,
    (select count(*) from seen.talks) as seen_released
"""


@dataclass
class Ledger:
    url: str

    def rows(self, query: str) -> list[dict[str, object]]:
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as connection:
            return connection.execute(query.encode()).fetchall()

    def number(self, query: str) -> int:
        [row] = self.rows(query)
        return int(str(next(iter(row.values()))))

    def books(self) -> dict[str, int]:
        """Every book in one snapshot."""
        [row] = self.rows(BOOKS)
        return {name: int(str(value)) for name, value in row.items()}

    def is_left_alone(self) -> bool:
        """Nobody of ours is connected: what a killed process had sent is done or undone."""
        return not self.number(
            "select count(*) from pg_stat_activity where datname = current_database()"
            " and application_name = 'sema-maintenance'"
        )


@pytest.fixture
def ledger(servers: Servers) -> Iterator[Ledger]:
    with ledgers.fresh_database(servers.url("18"), "sema_e2e_kill") as url:
        ledgers.create(url, "plain").close()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(LEDGER.encode())
            connection.execute("vacuum analyze")
        yield Ledger(url)


SMALL = {"ROWS_PER_BATCH": 40, "SCOPES_PER_PART": 4, "RELEASE_BATCH": 25}


@pytest.fixture
def settings(ledger: Ledger, tmp_path: Path) -> dict[str, object]:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY, encoding="utf-8")
    lease = f"{LEASE_S:.0f}s"
    return {"DATABASE_URL": ledger.url, "POLICY_FILE": policy, "RELEASE_LEASE": lease}


def is_further_than(ledger: Ledger, before: dict[str, int]) -> bool:
    return ledger.books()["gone"] > before["gone"]


def assert_books_agree(books: dict[str, int]) -> None:
    assert books["gone"] == books["seen_gone"] == books["counted_gone"]
    assert books["released"] == books["seen_released"] == books["counted_released"]
    # Every row that may go here has a transcript of its own, and so an entry of its own.
    assert books["gone"] == books["queued"] + books["counted_released"] + books["counted_named"]


def test_killed_again_and_again_it_strands_and_destroys_nothing(
    ledger: Ledger, settings: dict[str, object], tmp_path: Path
) -> None:
    """A reap and a drain side by side are killed at random moments, then run to their end."""
    chance = random.Random(SEED)
    pause = threading.Event()
    numbers = itertools.count(1)

    def start(command: str, **more: object) -> Child:
        args = ("-m", "worker", command, "--all-scopes", "--yes")
        environ = environment(**settings, **more)
        return Child(f"{command}-{next(numbers)}", tmp_path, environ, *args)

    killed_at_work = 0
    for _ in range(ROUNDS):
        before = ledger.books()
        with (
            start("reap", **SMALL) as reaping,
            start("release-sessions", **SMALL) as draining,
        ):
            wait_until(partial(is_further_than, ledger, before), "the reap at work")
            pause.wait(chance.uniform(0, 0.25))
            for child in chance.sample([reaping, draining], 2):
                child.process.send_signal(signal.SIGKILL)
            killed_at_work += reaping.ends() == -signal.SIGKILL
            draining.ends()
        wait_until(ledger.is_left_alone, "every connection gone")
        books = ledger.books()
        assert_books_agree(books)
        assert books["gone"] > before["gone"]

    assert killed_at_work == ROUNDS, "the reap was through too early to prove anything"
    assert 0 < books["gone"] < DUE

    with start("reap") as reaping:
        assert reaping.ends() == 0, reaping.log
    assert_books_agree(ledger.books())
    # What a killed drain had claimed is due when its lease is over.
    pause.wait(LEASE_S)
    with start("release-sessions") as draining:
        assert draining.ends() == 0, draining.log

    books = ledger.books()
    assert_books_agree(books)
    assert books["queued"] == 0
    # s7 keeps 40 rows whatever their age: it loses some of the young ones as well.
    young = ledger.number(
        "select count(*) from seen.before where scope = 's7' and settled_at > 1.6e12"
    )
    assert books["gone"] == DUE + young - 40
    assert_nothing_else_changed(ledger)


def assert_nothing_else_changed(ledger: Ledger) -> None:
    """Only what was due is gone, once; all else is as it was, with its transcript."""
    live = "status in ('running', 'parked')"
    assert ledger.number(f"select count(*) from seen.rows where {live}") == 0
    assert (
        ledger.number(
            "select count(*) from seen.before b where settled_at > 1.6e12"
            " and scope <> 's7' and not exists (select from public.background_agents a"
            " where a.scope = b.scope and a.handle = b.handle)"
        )
        == 0
    )
    assert (
        ledger.number(
            f"select count(*) from public.background_agents where scope = 's7' and not {live}"
        )
        == 40
    )
    # Every row that is left is the row it was.
    assert (
        ledger.number(
            "select count(*) from (select * from public.background_agents"
            " except select * from seen.before) changed"
        )
        == 0
    )
    # No transcript went twice, and none of a row that is left.
    assert (
        ledger.rows("select scope, session_id from seen.talks group by 1, 2 having count(*) > 1")
        == []
    )
    assert (
        ledger.number(
            "select count(*) from public.background_agents a where not exists (select from"
            " public.agent_sessions s where s.scope = a.scope and s.session_id = a.session_id)"
        )
        == 0
    )
    # No transcript is stranded: what is left has a row, or never had one.
    assert (
        ledger.number(
            "select count(*) from public.agent_sessions s where s.session_id not like 'nobody%'"
            " and not exists (select from public.background_agents a"
            " where a.scope = s.scope and a.session_id = s.session_id)"
        )
        == 0
    )
    assert (
        ledger.number("select count(*) from public.agent_sessions where session_id like 'nobody%'")
        == 500
    )
