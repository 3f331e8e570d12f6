"""The journal rolled up and old runs deleted, without a count that falls, doubles or gets lost."""

import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.rows import dict_row

from store import figures, runs
from store.agents import PostgresAgentStore
from store.database import Database
from store.housekeeping import UNSEEN, prune, roll_up
from tests.store.run_records import Records, by_hand, finish
from tests.store.stores import agent
from tests.waiting import wait_until

HOUR = timedelta(hours=1)
MS = timedelta(milliseconds=1)
ALL = 1000


@pytest.fixture
def records(plain_ledger: tuple[str, Database]) -> Iterator[Records]:
    url, database = plain_ledger
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        connection.execute("update maintenance.schema_migrations set applied_at = 0")
        yield Records(url, database, connection)


def now_ms(records: Records) -> int:
    [row] = records.rows("select (extract(epoch from clock_timestamp()) * 1000)::bigint as now")
    return int(row["now"])


def rolled_up(records: Records, now: int, batch_max: int = ALL) -> int:
    batches = roll_up(records.database, now, HOUR, batch_max)
    return sum(batch.rows for batch in batches if batch.what == "rolled_up")


def pruned(records: Records, now: int, batch_max: int = ALL) -> dict[str, int]:
    found: dict[str, int] = {}
    for batch in prune(records.database, now, HOUR, batch_max):
        found[batch.what] = found.get(batch.what, 0) + batch.rows
    return found


def run_of(records: Records, finished_at: int, state: str = "succeeded", **columns: Any) -> UUID:
    """A run that ended then, after a second, with its journal row."""
    run: dict[str, Any] = {
        "id": uuid4(),
        "job": "reap",
        "requested_by": "schedule",
        "state": state,
        "started_at": finished_at - 1000,
        "finished_at": finished_at,
    } | columns
    records.do(
        f"insert into maintenance.runs ({', '.join(run)}) values ({', '.join(['%s'] * len(run))})",
        *run.values(),
    )
    records.do(
        "insert into maintenance.run_parts (run_id, part, state) values (%s, 0, 'succeeded')",
        run["id"],
    )
    journal(records, run["id"], finished_at, "run", state, 1, job=str(run["job"]))
    found: UUID = run["id"]
    return found


def journal(
    records: Records,
    run_id: UUID,
    at: int,
    arm: str,
    cause: str | None,
    count: int,
    job: str = "reap",
) -> None:
    records.do(
        "insert into maintenance.journal (run_id, batch, at, job, scope, arm, cause, count)"
        " values (%s, 1, %s, %s, 's', %s, %s, %s)",
        run_id,
        at,
        job,
        arm,
        cause,
        count,
    )


def left(records: Records) -> int:
    [row] = records.rows("select count(*) as n from maintenance.journal")
    return int(row["n"])


def test_a_roll_up_changes_no_count_and_no_duration(records: Records) -> None:
    now = now_ms(records)
    for number in range(30):
        run_id = run_of(
            records,
            now - 4_000_000 - number,
            job=("reap", "flip_stale_running")[number % 2],
            started_at=now - 4_000_000 - number - 137 * number,
        )
        journal(records, run_id, now - 4_000_000, "max_age", None, number)
        journal(records, run_id, now - 4_000_000, "skipped", "failing", 2)
    before = figures.journal_totals(records.database)

    assert rolled_up(records, now, batch_max=7) == 90

    assert left(records) == 0
    assert figures.journal_totals(records.database) == before
    assert before[0]["reap", "max_age", None] == sum(range(30))
    assert before[1]["reap"].runs == 15
    assert rolled_up(records, now) == 0
    assert figures.journal_totals(records.database) == before


def test_only_what_ended_long_enough_ago_is_rolled_up(records: Records) -> None:
    """A second on either side of the hour; a run still open stays, whatever its rows' age."""
    now = now_ms(records)
    hour = HOUR // MS
    old = run_of(records, now - hour - 1000)
    young = run_of(records, now - hour + 1000)
    journal(records, young, now - hour - 5000, "max_age", None, 1)
    still_open = by_hand(records)
    journal(records, still_open.run_id, 5, "max_age", None, 1)
    journal(records, UUID(int=0), now - hour - 1000, "keep", None, 1)
    journal(records, UUID(int=0), now - hour + 1000, "keep", None, 1)

    assert rolled_up(records, now) == 2

    assert records.rows("select * from maintenance.journal where run_id = %s", old) == []
    assert left(records) == 4


def test_nothing_is_rolled_up_while_the_release_before_may_still_read(records: Records) -> None:
    """It adds up the journal alone: its counters would fall."""
    now = now_ms(records)
    run_of(records, now - 4_000_000)
    journal(records, UUID(int=0), 5, "keep", None, 1)
    records.do("update maintenance.schema_migrations set applied_at = %s", now - 3_000_000)
    assert rolled_up(records, now) == 0

    records.do("update maintenance.schema_migrations set applied_at = %s", now - 3_700_000)
    assert rolled_up(records, now) == 2


def test_a_part_that_comes_back_late_counts_and_its_report_does_not_shrink(
    records: Records,
) -> None:
    """The run was over and rolled up without it; what it did is in the journal, and so counted."""
    now = now_ms(records)
    run_id = run_of(records, now - 4_000_000, report='{"max_age": 7}')
    records.do(
        "insert into maintenance.run_parts (run_id, part, state) values (%s, 1, 'lost')", run_id
    )
    journal(records, run_id, now - 4_000_000, "max_age", None, 7)
    rolled_up(records, now)

    journal(records, run_id, now - 4_000_000, "max_age", None, 2)
    run = runs.Run(run_id, "reap", None, "test", (), "succeeded", now, now)
    assert finish(records.database, run, 1) is None

    [row] = records.rows("select report from maintenance.runs where id = %s", run_id)
    assert row["report"] == {"max_age": 7}
    assert figures.journal_totals(records.database)[0]["reap", "max_age", None] == 9
    assert rolled_up(records, now) == 1
    assert figures.journal_totals(records.database)[0]["reap", "max_age", None] == 9


def test_a_part_that_comes_back_before_the_roll_up_is_in_the_report(records: Records) -> None:
    now = now_ms(records)
    run_id = run_of(records, now - 4_000_000, report='{"max_age": 7}')
    journal(records, run_id, now - 4_000_000, "max_age", None, 7)
    journal(records, run_id, now - 4_000_000, "max_age", None, 2)
    run = runs.Run(run_id, "reap", None, "test", (), "succeeded", now, now)
    finish(records.database, run, 1)

    [row] = records.rows("select report from maintenance.runs where id = %s", run_id)
    assert row["report"] == {"max_age": 9}


def test_no_scrape_sees_a_counter_fall_or_double(records: Records) -> None:
    """Scrapes without end, while writers commit early and late and two roll everything up."""
    ended = threading.Event()
    rounds, writers = 60, 3
    now = now_ms(records)
    clock = now + 100 * (HOUR // MS)  # Whatever is there is old by then.

    def write(number: int) -> int:
        """Transactions left open for a while: their ids are long taken when they commit."""
        chance = random.Random(number)
        total = 0
        with psycopg.connect(records.url) as first, psycopg.connect(records.url) as second:
            for _ in range(rounds):
                for connection in chance.sample([first, second], 2):
                    count = chance.randrange(1, 9)
                    run_id = uuid4()
                    connection.execute(
                        "insert into maintenance.runs (id, job, requested_by, state, started_at,"
                        " finished_at) values (%s, 'reap', 'test', 'succeeded', 0, %s)",
                        (run_id, chance.randrange(1, 9) * 200),
                    )
                    connection.execute(
                        "insert into maintenance.journal (run_id, batch, at, job, arm, count)"
                        " values (%s, 1, 5, 'reap', 'max_age', %s)",
                        (run_id, count),
                    )
                    total += count
                    if chance.random() < 0.5:
                        connection.commit()
            first.commit()
            second.commit()
        return total

    def sweep(_: int) -> int:
        done = 0
        with closing(Database(records.url)) as own:
            while not ended.is_set():
                done += sum(b.rows for b in roll_up(own, clock, HOUR, 5))
        return done

    def scrape(_: int) -> int:
        reads, seen, seen_runs = 0, 0, 0
        with closing(Database(records.url)) as own:
            while not ended.is_set():
                totals, durations = figures.journal_totals(own)
                count = totals.get(("reap", "max_age", None), 0)
                timed = durations["reap"].runs if durations else 0
                assert count >= seen, "a counter fell"
                assert timed >= seen_runs, "the histogram fell"
                reads, seen, seen_runs = reads + 1, count, timed
        return reads

    with ThreadPoolExecutor(writers + 4) as pool:
        others = [pool.submit(act, n) for act in (sweep, scrape) for n in range(2)]
        try:
            written = sum(pool.map(write, range(writers)))
            wait_until(lambda: left(records) == 0 or any(f.done() for f in others), "all rolled up")
        finally:
            ended.set()
        done = [future.result() for future in others]

    assert all(count > 10 for count in done), "nobody raced"
    totals, durations = figures.journal_totals(records.database)
    assert totals == {("reap", "max_age", None): written}
    assert durations["reap"].runs == writers * rounds * 2


def test_what_a_scrape_reads_does_not_grow_with_history(records: Records) -> None:
    """Ten thousand runs, rolled up: the plan of the totals meets what is left, not what was."""
    now = now_ms(records)
    records.do(
        "insert into maintenance.runs (id, job, requested_by, state, started_at, finished_at)"
        " select gen_random_uuid(), 'reap', 'schedule', 'succeeded', n, n + 500"
        " from generate_series(1, 10000) n"
    )
    records.do(
        "insert into maintenance.journal (run_id, batch, at, job, scope, arm, cause, count)"
        " select id, 1, finished_at, 'reap', 's', 'run', 'succeeded', 1 from maintenance.runs"
    )
    run_of(records, now)
    before = figures.journal_totals(records.database)
    assert rolled_up(records, now, batch_max=4000) == 10_000
    records.do("vacuum analyze maintenance.journal")
    records.do("vacuum analyze maintenance.runs")

    assert figures.journal_totals(records.database) == before
    with records.database.transaction(read_only=True) as tx:
        statement = records.database.statements["journal_totals"]
        [(explained,)] = [
            row.values()
            for row in tx._connection.execute(
                b"explain (analyze, format json, timing off) " + statement,
                {"bounds_ms": [100, 200]},
            )
        ]
    read = met(explained[0]["Plan"])
    assert read < 50, explained


def met(node: dict[str, Any]) -> float:
    """How many rows the scans of a plan met, also those that they threw away."""
    own = 0.0
    if "Relation Name" in node:
        thrown = node.get("Rows Removed by Filter", 0)
        own = (node["Actual Rows"] + thrown) * node["Actual Loops"]
    return own + sum(met(child) for child in node.get("Plans", ()))


def test_old_runs_go_and_each_jobs_newest_completed_one_stays(records: Records) -> None:
    now = now_ms(records)
    hour = HOUR // MS
    kept = [
        run_of(records, now - 9 * hour, "partial"),
        run_of(records, now - 20 * hour, job="reconcile_parked"),
        run_of(records, now - hour + 1000, "failed"),
        by_hand(records).run_id,
    ]
    records.do("update maintenance.runs set started_at = 5 where id = %s", kept[-1])
    for _ in range(25):
        run_of(records, now - 9 * hour - 5, "succeeded")
        run_of(records, now - 2 * hour, "failed")
        run_of(records, now - 2 * hour, "failed", job="reconcile_parked")
    completed = figures.last_completed(records.database, ["reap", "reconcile_parked", "nobody"])
    totals = figures.journal_totals(records.database)

    assert pruned(records, now) == {}, "nothing goes before it is rolled up"
    rolled_up(records, now)
    assert pruned(records, now, batch_max=40) == {"runs": 75}

    found = records.rows("select id from maintenance.runs order by started_at")
    assert {row["id"] for row in found} == set(kept)
    parts = records.rows("select distinct run_id from maintenance.run_parts")
    assert {row["run_id"] for row in parts} == set(kept)
    assert completed == {"reap": now - 9 * hour, "reconcile_parked": now - 20 * hour}
    again = figures.last_completed(records.database, ["reap", "reconcile_parked", "nobody"])
    assert again == completed
    assert figures.journal_totals(records.database) == totals


def test_a_run_stays_while_any_of_its_rows_is_in_the_journal(records: Records) -> None:
    now = now_ms(records)
    run_id = run_of(records, now - 9_000_000, "failed")
    rolled_up(records, now)
    journal(records, run_id, now - 9_000_000, "max_age", None, 1)
    assert pruned(records, now) == {}

    rolled_up(records, now)
    assert pruned(records, now) == {"runs": 1}


def test_requests_go_once_they_are_over_and_old(records: Records) -> None:
    now = now_ms(records)
    for requested_at in (now - HOUR // MS - 1000, now - HOUR // MS + 1000):
        for state in ("queued", "taken", "refused"):
            records.do(
                "insert into maintenance.requests (id, job, requested_by, requested_at, state)"
                " values (gen_random_uuid(), 'reap', 'ada', %s, %s)",
                requested_at,
                state,
            )

    assert pruned(records, now, batch_max=1) == {"requests": 2}
    found = records.rows("select state from maintenance.requests where requested_at < %s", now)
    assert sorted(row["state"] for row in found) == ["queued", "queued", "refused", "taken"]


@contextmanager
def refusing(records: Records, table: str, condition: str, code: str = "P0001") -> Iterator[None]:
    """While this lasts, such a row of the table cannot be deleted or changed."""
    records.do(
        "create function public.refuse() returns trigger language plpgsql as $$ begin"
        f" if {condition} then raise exception 'no' using errcode = '{code}'; end if;"
        " return case when tg_op = 'DELETE' then old else new end; end $$"
    )
    records.do(
        f"create trigger refuse before update or delete on maintenance.{table}"
        " for each row execute function public.refuse()"
    )
    try:
        yield
    finally:
        records.do(f"drop trigger refuse on maintenance.{table}")
        records.do("drop function public.refuse()")


def _over(records: Records, now: int) -> None:
    """Forty of each kind that are over, the oldest first but for runs; each with a name."""
    records.do(
        "insert into maintenance.actions (at, actor, action)"
        " select n, 'a' || n, 'pause' from generate_series(1, 40) n"
    )
    records.do(
        "insert into maintenance.requests (id, job, requested_by, requested_at, state)"
        " select gen_random_uuid(), 'reap', 'a' || n, n, 'taken' from generate_series(1, 40) n"
    )
    records.do(
        "insert into maintenance.holds"
        " (scope, reason, placed_by, placed_at, ends_at, released_by, released_at)"
        " select 's', 'why', 'a' || n, 1, case when o then n end,"
        " case when not o then 'bob' end, case when not o then n end"
        " from generate_series(1, 40) n, unnest(array[true, false]) o"
    )
    records.do(
        "insert into maintenance.sightings"
        " (scope, handle, verdict, rev, updated_at, writer_id, first_seen, last_seen)"
        " select 's', 'a' || n, v, 1, 1, 'w', 1, n"
        " from generate_series(1, 40) n, unnest(array['stale_running', 'flipped']) v"
    )
    records.do(
        "insert into maintenance.session_releases (scope, session_id, handle, settled_at, run_id,"
        " queued_at, not_before, state, record, restorable_until)"
        " select 's', null, 'a' || n, 1, gen_random_uuid(), 1, 1, 'kept', '{}', n"
        " from generate_series(1, 40) n"
    )
    for number in range(40):
        run_of(records, now - HOUR // MS * 2 - number, requested_by=f"a{number + 1}")


@pytest.mark.parametrize(
    ("table", "what", "name"),
    [
        ("runs", "runs_rolled_up", "old.requested_by"),
        (
            "journal",
            "rolled_up",
            "(select r.requested_by from maintenance.runs r where r.id = old.run_id)",
        ),
        ("requests", "requests", "old.requested_by"),
        ("holds", "holds", "old.placed_by"),
        ("actions", "actions", "old.actor"),
        ("sightings", "sightings", "old.handle"),
        ("session_releases", "kept", "old.handle"),
    ],
    ids=lambda value: value if value.isidentifier() else "",
)
def test_what_cannot_be_tidied_holds_up_nothing_else(
    records: Records, table: str, what: str, name: str
) -> None:
    """Neither what is behind such a row nor any other kind; each of them is told."""
    now = now_ms(records)
    _over(records, now)
    stuck = 4 if table in {"holds", "sightings"} else 2

    with refusing(records, table, f"{name} in ('a3', 'a17')"):
        batches = [*roll_up(records.database, now, HOUR, 16)]
        batches += prune(records.database, now, HOUR, 160)

    told = [(each.what, each.error) for each in batches if each.error is not None]
    assert told == [(what, "Postgres reported: no")] * stuck
    done: Counter[str] = Counter()
    for each in batches:
        done[each.what] += each.rows
    expected = {"runs_rolled_up": 40, "rolled_up": 40, "runs": 39, "requests": 40, "holds": 80,
                "actions": 40, "sightings": 80, "kept": 40}  # fmt: skip
    expected[what] -= stuck
    if table in {"runs", "journal"}:
        # A run stays while it, or any row of its journal, is not added up.
        expected["runs"] -= 2
    if table == "runs":
        expected["rolled_up"] -= 2
    assert dict(done) == expected
    assert {*pruned(records, now)} <= {what, "runs"}


def test_a_kind_without_its_privilege_holds_up_no_other(records: Records) -> None:
    """It is told once, and nothing of it is tried row by row."""
    now = now_ms(records)
    _over(records, now)
    records.do("alter table maintenance.requests rename to elsewhere")
    try:
        batches = [*prune(records.database, now, HOUR, 16)]
    finally:
        records.do("alter table maintenance.elsewhere rename to requests")

    [(what, error)] = [(each.what, each.error) for each in batches if each.error is not None]
    assert (what, "maintenance.requests" in (error or "")) == ("requests", True)
    assert sum(each.rows for each in batches if each.what == "kept") == 40


def test_sightings_go_once_nobody_confirms_them(records: Records) -> None:
    now = now_ms(records)
    for handle, seen in (("old", now - UNSEEN // MS - 1000), ("new", now - UNSEEN // MS + 1000)):
        records.do(
            "insert into maintenance.sightings"
            " (scope, handle, verdict, rev, writer_id, updated_at, first_seen, last_seen)"
            " values ('s', %s, 'stale', 1, 'w', 1, 1, %s)",
            handle,
            seen,
        )

    assert pruned(records, now) == {"sightings": 1}
    assert [r["handle"] for r in records.rows("select * from maintenance.sightings")] == ["new"]


def test_holds_go_once_they_are_over_and_old_and_acts_by_their_age(records: Records) -> None:
    now = now_ms(records)
    old, young = now - HOUR // MS - 1, now - HOUR // MS
    kept = [(None, None), (now + 1, None), (young, None), (None, young), (old, young)]
    for ends_at, released_at in [*kept, (old, None), (None, old), (now + 1, old)]:
        records.rows(
            "insert into maintenance.holds"
            " (scope, reason, placed_by, placed_at, ends_at, released_by, released_at)"
            " values ('s', 'why', 'ada', 1, %s, 'bob', %s) returning id",
            ends_at,
            released_at,
        )
    for at in (old, young, now):
        records.rows(
            "insert into maintenance.actions (at, actor, action) values (%s, 'ada', 'pause')"
            " returning id",
            at,
        )

    assert pruned(records, now, batch_max=1) == {"holds": 3, "actions": 1}

    left = records.rows("select ends_at, released_at from maintenance.holds order by id")
    assert [(row["ends_at"], row["released_at"]) for row in left] == kept
    acts = records.rows("select at from maintenance.actions order by at")
    assert [row["at"] for row in acts] == [young, now]


def test_records_of_flips_go_with_the_row_or_once_it_was_written_since(records: Records) -> None:
    """As long as the row is as the flip left it, its writer may live and correct it."""
    now = now_ms(records)
    old = now - UNSEEN // MS - 1000
    for handle, rev, seen in (("as it was", 2, old), ("moved", 1, old), ("gone", 2, old)):
        records.do(
            "insert into maintenance.sightings"
            " (scope, handle, verdict, rev, writer_id, updated_at, first_seen, last_seen)"
            " values ('s', %s, 'flipped', %s, 'w', 1, 1, %s)",
            handle,
            rev,
            seen,
        )
    agents = PostgresAgentStore(records.database)
    for handle in ("as it was", "moved"):
        agents.put(agent(handle, status="failed", scope="s", rev=2))

    assert pruned(records, now) == {"sightings": 2}
    left = records.rows("select handle from maintenance.sightings")
    assert [row["handle"] for row in left] == ["as it was"]


def test_runs_of_the_release_before_are_timed_as_well(records: Records) -> None:
    """It knows no totals: what it leaves is a finished run and its journal row."""
    now = now_ms(records)
    run_of(records, now - 4_000_000, started_at=now - 4_000_000 - 700)
    run_of(records, now - 10, started_at=now - 10 - 120_000)
    # A clock that was set back, and a run beyond every bucket.
    run_of(records, now - 4_000_000, started_at=now - 3_000_000)
    run_of(records, now - 4_000_000, started_at=now - 8_000_000)
    before = figures.journal_totals(records.database)[1]["reap"]
    rolled_up(records, now)

    assert figures.journal_totals(records.database)[1]["reap"] == before
    # Up to 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300 and 900 seconds.
    assert before.within == (1, 1, 2, 2, 2, 2, 2, 2, 3, 3)
    assert before.runs == 4
    assert before.total == timedelta(milliseconds=700 + 120_000 + 4_000_000)
