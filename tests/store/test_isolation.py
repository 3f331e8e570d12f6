"""One scope's failure never stops the others: what fails is halved, to the scope and the row."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest

from store.agents import PostgresAgentStore
from store.batches import BatchSize, Done, Stamp
from store.database import Database, Limits
from store.errors import StoreError, StoreUnavailable
from store.reap import reap
from store.retention import RetentionPolicy
from tests.store.misbehaving import key_of, misbehaving, table_of
from tests.store.stores import NOW
from tests.store.three_jobs import journal, named

Ledger = tuple[str, Database]
HASTY = Limits(
    statement_timeout=timedelta(milliseconds=400), lock_timeout=timedelta(milliseconds=100)
)
SIZE = BatchSize(rows=80, scopes=20)
EVERYTHING = RetentionPolicy(max_age_ms=0)
_REFUSED = "Postgres reported: this row may not be written"
_TOO_LONG = "a statement was given up: canceling statement due to statement timeout"


class Bench:
    """A ledger, jobs on it that do not wait for long, and a connection beside them."""

    def __init__(self, url: str, database: Database, beside: psycopg.Connection) -> None:
        self.url = url
        self.schema = database.statements.ledger_schema
        self.database = database
        self.beside = beside
        self.failing: dict[str, str] = {}
        self.done: list[Done] = []

    def fill(self, scopes: str, handles: str, rows: str = "generate_series(1, 1) n") -> None:
        """Place finished rows; `scopes` and `handles` are SQL over their number `n`."""
        self.beside.execute(
            f"insert into {self.schema}.background_agents (scope, handle, rev, status, owner,"
            " session_scoped, writer_id, spawned_at, updated_at, settled_at, session_id, content)"
            f" select {scopes}, {handles}, 1, 'completed', 'owner', true, 'host-a', 0,"
            f" {NOW} - 5000, {NOW} - 5000, 'transcript', '{{}}' from {rows}".encode()
        )
        self.beside.execute(f"analyze {table_of(self.database)}".encode())

    def reap(self, scopes: list[str], size: BatchSize = SIZE) -> Counter[str]:
        """The same of a run that deletes everything."""
        policies = [(scope, EVERYTHING) for scope in scopes]
        return self.counted(lambda stamp: reap(self.database, policies, stamp, size))

    def counted(self, batches: Callable[[Stamp], Iterator[Done]]) -> Counter[str]:
        """What a run of its own counted, which is what the journal has of it."""
        stamp = Stamp(NOW, uuid4())
        counted: Counter[str] = Counter()
        self.done = []
        for done in batches(stamp):
            self.done.append(done)
            self.failing |= done.failing
            counted += named(done.by_kind)
        assert counted == journal(self.beside, stamp.run_id)
        return counted

    def left(self) -> dict[str, list[str]]:
        """The rows that are left, by scope."""
        rows = self.beside.execute(
            f"select scope, array_agg(handle order by handle) from {self.schema}.background_agents"
            " group by scope".encode()
        )
        return dict(rows.fetchall())

    def batches(self) -> list[int]:
        """How many rows each batch deleted, in order."""
        rows = self.beside.execute(
            "select sum(count)::int from maintenance.journal where arm = 'max_age'"
            " group by batch order by batch"
        )
        return [count for (count,) in rows]


@contextmanager
def bench_on(ledger: Ledger, limits: Limits) -> Iterator[Bench]:
    url, made = ledger
    schema = made.statements.ledger_schema
    with closing(Database(url, schema, limits)) as database, misbehaving(url, made) as beside:
        yield Bench(url, database, beside)


@pytest.fixture
def bench(ledger: Ledger) -> Iterator[Bench]:
    """Every layout on every version."""
    with bench_on(ledger, HASTY) as bench:
        yield bench


@pytest.fixture
def plain_bench(plain_ledger: Ledger) -> Iterator[Bench]:
    """A plain table on every version."""
    with bench_on(plain_ledger, HASTY) as bench:
        yield bench


def test_one_locked_one_poisoned_and_one_over_long_scope_among_a_thousand(bench: Bench) -> None:
    """All the others are done; what is locked is a lost race, and the other two are named."""
    scopes = [f"t{n:04}" for n in range(1, 1001)]
    bench.fill("'t' || lpad(n::text, 4, '0')", "'a'", "generate_series(1, 1000) n")
    bench.fill("'t' || lpad(n::text, 4, '0')", "'c'", "generate_series(1, 1000) n")
    bench.fill("'t0500'", "'b poisoned'")
    bench.fill("'t0700'", "'b stuck'")

    with psycopg.connect(bench.url) as holder:
        holder.execute(
            f"select from {bench.schema}.background_agents"
            " where scope = 't0100' for update".encode()
        )
        counted = bench.reap(scopes)

    assert bench.left() == {"t0100": ["a", "c"], "t0500": ["b poisoned"], "t0700": ["b stuck", "c"]}
    assert counted == {"max_age": 2000 - 3, "lost_race": 2, "skipped/failing": 1}
    assert bench.failing == {"t0500": _REFUSED, "t0700": _TOO_LONG}


def test_a_batch_that_times_out_shrinks_ends_and_grows_back(plain_bench: Bench) -> None:
    """Forty rows of 20 ms each do not fit into 400 ms; the two thousand after them do."""
    bench = plain_bench
    bench.fill("'s'", "'a slow ' || lpad(n::text, 4, '0')", "generate_series(1, 40) n")
    bench.fill("'s'", "'b ' || lpad(n::text, 4, '0')", "generate_series(1, 2000) n")

    counted = bench.reap(["s"], BatchSize(rows=200, scopes=20))

    assert counted == {"max_age": 2040}
    assert bench.left() == {}
    assert bench.failing == {}
    batches = bench.batches()
    assert batches[0] < 40
    assert max(batches) == 200
    assert [done for done in bench.done if not done.by_kind], "no turn between failed attempts"


def test_scopes_that_are_slow_together_are_done_in_smaller_batches(plain_bench: Bench) -> None:
    """No scope is to blame, so none is named: twenty scopes of five slow rows each."""
    bench = plain_bench
    scopes = [f"s{n}" for n in range(20)]
    for scope in scopes:
        bench.fill(f"'{scope}'", "'slow ' || n", "generate_series(1, 5) n")

    assert bench.reap(scopes) == {"max_age": 100}

    assert bench.failing == {}
    assert max(bench.batches()) < 80


def test_a_row_that_another_table_points_at_is_passed_over(bench: Bench) -> None:
    """It is counted and its scope named; what is before and behind it goes, in the next run too."""
    table, key = table_of(bench.database), key_of(bench.database)
    bench.fill("'s'", "'a' || n", "generate_series(1, 9) n")
    bench.beside.execute(
        f"create table public.pointers (s text, h text,"
        f" foreign key (s, h) references {table} ({key}))".encode()
    )
    try:
        bench.beside.execute("insert into public.pointers values ('s', 'a4'), ('s', 'a7')")
        counted = bench.reap(["s", "t"])
        assert counted == {"max_age": 7, "skipped/failing": 2}
        assert bench.left() == {"s": ["a4", "a7"]}
        assert [*bench.failing] == ["s"]
        assert bench.failing["s"].startswith("Postgres refused a row: update or delete on table")
    finally:
        bench.beside.execute("drop table public.pointers")

    assert bench.reap(["s"]) == {"max_age": 2}


def test_a_scope_full_of_failing_rows_is_given_up(plain_bench: Bench) -> None:
    """After ten of them, for this run; other scopes are done."""
    bench = plain_bench
    bench.fill("'s'", "'a poisoned ' || lpad(n::text, 2, '0')", "generate_series(1, 12) n")
    bench.fill("'s'", "'b'")
    bench.fill("'t'", "'b'")

    assert bench.reap(["s", "t"]) == {"max_age": 1, "skipped/failing": 10}

    assert bench.failing == {"s": _REFUSED}
    assert len(bench.left()["s"]) == 13


def test_a_scope_that_failed_before_is_tried_by_itself_and_once(plain_bench: Bench) -> None:
    """To find it among the others costs many time-outs, and was done by the run before."""
    bench = plain_bench
    scopes = [f"s{n}" for n in range(40)]
    bench.fill("'s' || n", "'a' || n", "generate_series(0, 39) n")
    bench.fill("'s7'", "'a stuck'")
    bench.beside.execute(
        "insert into maintenance.failing_scopes (job, scope, run_id, error, since, last_at)"
        " values ('reap', 's7', gen_random_uuid(), '', 0, 0)"
    )

    assert bench.reap(scopes) == {"max_age": 39}

    assert bench.failing == {"s7": _TOO_LONG}
    assert [done for done in bench.done if not done.by_kind] == [Done(failing={"s7": _TOO_LONG})]


def test_a_row_that_both_arms_meet_is_counted_once(plain_bench: Bench) -> None:
    bench = plain_bench
    bench.fill("'s'", "'poisoned'")
    policy = RetentionPolicy(max_age_ms=0, keep=0)

    batches = [*reap(bench.database, [("s", policy)], Stamp(NOW), SIZE)]

    assert sum(done.by_kind.get(("skipped", "failing"), 0) for done in batches) == 1


def test_a_table_that_is_locked_as_a_whole_ends_the_run_at_once(bench: Bench) -> None:
    """Nobody looks for the scope to blame: it is an error, and nothing is done."""
    scopes = [f"s{n}" for n in range(50)]
    bench.fill("'s' || n", "'a'", "generate_series(0, 49) n")

    with psycopg.connect(bench.url) as holder:
        holder.execute(f"lock table {table_of(bench.database)} in share mode".encode())
        with pytest.raises(StoreUnavailable, match="locked as a whole"):
            bench.reap(scopes)

    assert len(bench.left()) == 50
    assert bench.reap(scopes) == {"max_age": 50}


def test_a_lost_connection_ends_the_run_at_once(plain_bench: Bench) -> None:
    bench = plain_bench
    bench.fill("'s' || n", "'slow'", "generate_series(0, 19) n")
    bench.beside.execute(
        "create function public.die() returns trigger language plpgsql as $$"
        " begin perform pg_terminate_backend(pg_backend_pid()); return old; end $$"
    )
    table = table_of(bench.database)
    bench.beside.execute(
        f"create trigger die before delete on {table} for each row"
        " execute function public.die()".encode()
    )
    try:
        with pytest.raises(StoreUnavailable):
            bench.reap([f"s{n}" for n in range(20)])
    finally:
        bench.beside.execute(f"drop trigger die on {table}".encode())
        bench.beside.execute("drop function public.die()")
    assert len(bench.left()) == 20


def test_a_store_function_raises_what_its_one_scope_fails_with(bench: Bench) -> None:
    """Who calls it for one scope has nothing to go on with."""
    bench.fill("'s'", "'poisoned'")
    store = PostgresAgentStore(bench.database)

    with pytest.raises(StoreError, match="may not be written"):
        store.reap("s", NOW, EVERYTHING)
