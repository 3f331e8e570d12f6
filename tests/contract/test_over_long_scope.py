"""One scope that takes too long to be read stops no tick: it is named, and the others are done.

Each row of the scope `slow` takes a hundredth of a second to be read, and a statement may take less
than all of its rows do.
"""

from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest

from config.policy import parse_policy
from config.settings import load_settings
from store import runs
from store.database import Database
from tests.waiting import wait_until
from worker import frame, manual
from worker.context import Process

POLICY = """
[schedule]
reap = "1s"
flip_stale_running = "1s"
reconcile_parked = "1s"
[guards]
sightings = false
outage = false
[defaults]
keep = 1
stale_running_max_age = "15m"
[[override]]
match = "slow"
keep = {keep}
"""
TOO_LONG = "a statement was given up: canceling statement due to statement timeout"
SMALL = [f"small {number:02}" for number in range(30)]
_SLOW_ROWS = 100
_LEDGER = """
create schema slowed;
create function public.read_in(millis float, scope text) returns boolean
    language plpgsql stable cost 100000 as
$$ begin if scope = 'slow' then perform pg_sleep(millis / 1000); end if; return true; end $$;
create view slowed.background_agents as
    select a.* from public.background_agents a where public.read_in(10, a.scope);
create view slowed.checkpoints as select * from public.checkpoints;
create view slowed.agent_sessions as select * from public.agent_sessions;
"""
_MENDED = """
create or replace function public.read_in(millis float, scope text) returns boolean
    language sql stable as $$ select true $$;
"""
_PENDING = (
    "insert into public.checkpoints (scope, token, status) values ('slow', 'there', 'pending')"
)
_GONE = "drop schema slowed cascade; drop function public.read_in;"


class Slowed:
    """A ledger with a scope that is slow to be read, and a process that works on it."""

    def __init__(self, url: str, server: psycopg.Connection, keep: str = "90") -> None:
        self._server = server
        environ = {
            "MAINT_DATABASE_URL": url,
            "MAINT_LEDGER_SCHEMA": "slowed",
            "MAINT_STATEMENT_TIMEOUT": "400ms",
        }
        self.process = Process(load_settings(environ), parse_policy(POLICY.format(keep=keep), "p"))

    def do(self, statements: str) -> None:
        self._server.execute(statements.encode())

    def select(self, query: str) -> list[tuple[object, ...]]:
        return self._server.execute(query.encode()).fetchall()

    def fill(self, scope: str, rows: int, status: str, ms_ago: int, token: str = "") -> None:
        """Place rows that were written so long ago, and settled then if they are finished.

        A token is that of an approval: parked rows wait for it, running ones come back from it.
        """
        at = f"(extract(epoch from clock_timestamp()) * 1000)::bigint - {ms_ago}"
        settled = "null" if status in {"running", "parked"} else at
        self.do(
            "insert into public.background_agents (scope, handle, rev, status, owner,"
            " session_scoped, writer_id, spawned_at, updated_at, settled_at,"
            " parked_checkpoint_token, parked_at, park_claim_id, content)"
            f" select '{scope}', clock_timestamp()::text || n, 1, '{status}', 'owner', true, 'w',"
            f" 0, {at}, {settled}, nullif('{token}', ''),"
            f" case '{status}' when 'parked' then 0 end,"
            f" case '{status}' when 'running' then nullif('{token}', '') end, '{{}}'"
            f" from generate_series(1, {rows}) n"
        )
        # WHY: of a table that it believes to be empty, Postgres reads all there is.
        self.do("analyze public.background_agents")

    def fill_small(self, rows: int, status: str, ms_ago: int, token: str = "") -> None:
        for scope in SMALL:
            self.fill(scope, rows, status, ms_ago, token)

    def small(self, status: str) -> int:
        [(count,)] = self.select(
            f"select count(*) from public.background_agents where status = '{status}'"
            " and scope like 'small%'"
        )
        assert isinstance(count, int)
        return count

    def failing(self) -> list[tuple[object, ...]]:
        return self.select("select job, scope, error from maintenance.failing_scopes")

    def tick(self, job: str) -> runs.Run:
        """The next tick of the job, with all that it found."""
        before = runs.list_runs(self.process.database, job, 1)

        def ticked() -> bool:
            for run_id, number in frame.tick(self.process, job):
                frame.work(self.process, run_id, number)
            return runs.list_runs(self.process.database, job, 1) != before

        wait_until(ticked, "the next slot", every_s=0.1)
        return runs.list_runs(self.process.database, job, 1)[0]


Make = Callable[..., Slowed]


@pytest.fixture
def make(plain_ledger: tuple[str, Database]) -> Iterator[Make]:
    url, _ = plain_ledger
    made: list[Slowed] = []
    with closing(psycopg.connect(url, autocommit=True)) as server:
        server.execute(_LEDGER.encode())

        def slowed(keep: str = "90") -> Slowed:
            made.append(Slowed(url, server, keep))
            return made[-1]

        try:
            yield slowed
        finally:
            for each in made:
                each.process.close()
            server.execute(_GONE.encode())


def test_reap_is_done_but_for_the_scope_whose_rows_cannot_be_counted_in_time(make: Make) -> None:
    """At this tick and at the next one; until it can be, when a tick mends it."""
    ledger = make()
    ledger.fill("slow", _SLOW_ROWS, "completed", 40 * 60_000)
    ledger.fill_small(3, "completed", 60_000)

    first = ledger.tick("reap")

    assert (first.state, first.report) == ("partial", {"keep": 2 * len(SMALL)})
    assert first.failing == {"slow": TOO_LONG}
    assert ledger.failing() == [("reap", "slow", TOO_LONG)]

    ledger.fill_small(1, "completed", 0)
    again = ledger.tick("reap")
    assert (again.state, again.report) == ("partial", {"keep": len(SMALL)})
    assert again.failing == {"slow": TOO_LONG}
    assert ledger.small("completed") == len(SMALL)

    ledger.do(_MENDED)
    mended = ledger.tick("reap")
    assert (mended.state, mended.report) == ("succeeded", {"keep": _SLOW_ROWS - 90})
    assert ledger.failing() == []


@pytest.mark.parametrize("scopes", [None, ["slow", *SMALL]])
def test_reap_by_hand_names_the_scope_and_does_the_others(
    make: Make, scopes: list[str] | None
) -> None:
    ledger = make()
    ledger.fill("slow", _SLOW_ROWS, "completed", 40 * 60_000)
    ledger.fill_small(2, "completed", 60_000)
    process = ledger.process

    run = manual.by_hand(process, "reap", scopes, policy=process.policy, requested_by="test")

    assert (run.state, run.failing) == ("partial", {"slow": TOO_LONG})
    assert ledger.small("completed") == len(SMALL)


def test_tick_that_cannot_read_what_settled_in_time_looks_at_all_scopes(make: Make) -> None:
    """Where so many rows have settled, nothing is left out and nothing fails."""
    ledger = make(keep='"off"')
    ledger.fill("slow", _SLOW_ROWS, "completed", 0)
    assert ledger.tick("reap").state == "succeeded"
    ledger.fill_small(2, "completed", 0)

    run = ledger.tick("reap")

    assert (run.state, run.report) == ("succeeded", {"keep": len(SMALL)})


def test_flip_is_done_but_for_the_scope_that_is_over_long(make: Make) -> None:
    """Its rows are silent and on their way back from an approval that can still be given."""
    ledger = make()
    ledger.do(_PENDING)
    ledger.fill("slow", _SLOW_ROWS, "running", 20 * 60_000, "there")
    ledger.fill_small(1, "running", 20 * 60_000)

    first = ledger.tick("flip_stale_running")

    assert (first.state, first.report) == ("partial", {"flipped": len(SMALL)})
    assert first.failing == {"slow": TOO_LONG}
    assert ledger.failing() == [("flip_stale_running", "slow", TOO_LONG)]
    ledger.fill_small(1, "running", 20 * 60_000)
    again = ledger.tick("flip_stale_running")
    assert (again.report, again.failing) == ({"flipped": len(SMALL)}, {"slow": TOO_LONG})


def test_reconciliation_is_done_but_for_the_scope_that_is_over_long(make: Make) -> None:
    ledger = make()
    ledger.do(_PENDING)
    ledger.fill("slow", _SLOW_ROWS, "parked", 0, "there")
    ledger.fill_small(1, "parked", 0, "gone")

    first = ledger.tick("reconcile_parked")

    assert first.state == "partial"
    assert first.report == {"failed/checkpoint_missing": len(SMALL)}
    assert first.failing == {"slow": TOO_LONG}
    ledger.fill_small(1, "parked", 0, "gone")
    again = ledger.tick("reconcile_parked")
    assert again.report == {"failed/checkpoint_missing": len(SMALL)}
    assert again.failing == {"slow": TOO_LONG}
