"""Harvest rejections: each counts once, whoever drains; codes are few; counted rows go in time."""

import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row

from store.batches import Backlog, Stamp
from store.database import Database
from store.errors import StoreUnusable
from store.figures import uncounted_rejections
from store.harvest import (
    CODES_MAX,
    Rejections,
    drain_harvest,
    preview_harvest,
    prune_harvest,
)
from tests.waiting import wait_until

NOW = 1_796_029_200_000
RUN = UUID(int=7)
DAY = timedelta(days=1)


@dataclass
class Harvest:
    """The table as the server sees it, and what the journal has of it."""

    url: str
    database: Database
    connection: psycopg.Connection[dict[str, Any]]

    def rejected(self, *codes: str | None, scope: str | None = "s", **columns: Any) -> None:
        insert(self.connection, *codes, scope=scope, **columns)

    def drain(
        self, scopes: list[str] | None = None, batch_max: int = 1000, now: int = NOW
    ) -> list[Rejections]:
        batches = drain_harvest(self.database, scopes, Stamp(now, RUN), batch_max)
        return [each for _, rejections in batches for each in rejections]

    def prune(self, scopes: list[str] | None = None, now: int = NOW, batch_max: int = 1000) -> int:
        batches = prune_harvest(self.database, scopes, Stamp(now, RUN), DAY, batch_max)
        return sum(done.rows for done in batches)

    def rows(self, query: str, *params: object) -> list[dict[str, Any]]:
        return self.connection.execute(query.encode(), params or None).fetchall()

    def counted(self) -> dict[str, int]:
        """The journal's rejections by code."""
        found = self.rows(
            "select cause, sum(count)::bigint as count from maintenance.journal"
            " where job = 'drain_harvest' and arm = 'rejected' group by cause"
        )
        return {row["cause"]: row["count"] for row in found}

    def marked(self) -> int:
        [row] = self.rows(
            "select count(*) as n from maintenance.harvest_rejections where counted_at is not null"
        )
        return int(row["n"])


def insert(
    connection: psycopg.Connection[Any],
    *codes: str | None,
    scope: str | None = "s",
    **columns: Any,
) -> None:
    values = {"scope": scope, "session_id": "talk", "occurred_at": NOW, **columns}
    for code in codes:
        row = {**values, "code": code}
        connection.execute(
            f"insert into maintenance.harvest_rejections ({', '.join(row)})"
            f" values ({', '.join(f'%({name})s' for name in row)})",
            row,
        )


@pytest.fixture
def harvest(plain_ledger: tuple[str, Database]) -> Iterator[Harvest]:
    url, database = plain_ledger
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        yield Harvest(url, database, connection)


def test_each_rejection_counts_once_by_its_code(harvest: Harvest) -> None:
    harvest.rejected("too_large", "too_large", "unsafe_path", detail="d")

    found = harvest.drain()
    again = harvest.drain()

    assert {(r.scope, r.code): r.count for r in found} == {
        ("s", "too_large"): 2,
        ("s", "unsafe_path"): 1,
    }
    assert again == []
    assert harvest.counted() == {"too_large": 2, "unsafe_path": 1}
    assert harvest.marked() == 3


def test_small_batches_count_the_same(harvest: Harvest) -> None:
    harvest.rejected(*["a", "b", "c"] * 7)

    harvest.drain(batch_max=4)

    assert harvest.counted() == {"a": 7, "b": 7, "c": 7}


def test_drain_of_one_scope_leaves_the_others_and_those_of_none(harvest: Harvest) -> None:
    for scope in ("s", "t", None):
        harvest.rejected("a", scope=scope)

    assert [(r.scope, r.count) for r in harvest.drain(["s"])] == [("s", 1)]
    assert sorted((str(r.scope), r.count) for r in harvest.drain()) == [("None", 1), ("t", 1)]


@pytest.mark.parametrize(
    "code",
    [
        None,
        "",
        "Upper",
        "1digit",
        "_under",
        "with-dash",
        "with space",
        "trailing\n",
        "tab\there",
        "esc\x1b[31m",
        "umlaut_ä",
        "a" * 65,
        "other",
        "x" * 100_000,
    ],
)
def test_code_that_is_none_counts_as_other(harvest: Harvest, code: str | None) -> None:
    harvest.rejected(code)

    [found] = harvest.drain()

    assert found.code == "other"
    assert found.given == (None if code is None else code[:100])
    assert harvest.counted() == {"other": 1}
    assert harvest.rows("select * from maintenance.harvest_codes") == []


@pytest.mark.parametrize("code", ["a", "a" * 64, "a0_", "restricted_divergence"])
def test_code_that_is_one_counts_as_itself(harvest: Harvest, code: str) -> None:
    harvest.rejected(code)
    harvest.drain()

    assert harvest.counted() == {code: 1}


def test_codes_past_the_limit_count_as_other_for_good(harvest: Harvest) -> None:
    """The first ones stay what they are, however often and in whatever order they come."""
    first = [f"c{n}" for n in range(CODES_MAX)]
    harvest.rejected(*first, "late_a", "late_b")
    harvest.drain(batch_max=7)
    harvest.rejected("late_a", "c63", "c0", "late_c")
    harvest.drain()

    assert harvest.counted() == dict.fromkeys(first, 1) | {"c0": 2, "c63": 2, "other": 4}


def test_restricted_divergence_is_never_other(harvest: Harvest) -> None:
    harvest.rejected(*(f"c{n}" for n in range(CODES_MAX + 3)), "restricted_divergence")
    harvest.drain()

    assert harvest.counted()["restricted_divergence"] == 1
    assert harvest.counted()["other"] == 3


def test_restricted_divergence_takes_its_place_among_the_distinct_ones(harvest: Harvest) -> None:
    harvest.rejected("restricted_divergence", *(f"c{n}" for n in range(CODES_MAX)))
    harvest.drain()

    assert len(harvest.counted()) == CODES_MAX + 1
    assert harvest.counted()["other"] == 1


def test_drains_side_by_side_share_the_work_and_the_limit(harvest: Harvest) -> None:
    """Eight at once, over more codes than there is room for: each row once, 64 names at most."""
    codes = [f"c{n}" for n in range(CODES_MAX * 2)] * 5
    random.Random(1).shuffle(codes)
    harvest.rejected(*codes)
    begin = threading.Barrier(8)

    def drain(number: int) -> int:
        with closing(Database(harvest.url)) as own:
            begin.wait()
            stamp = Stamp(NOW, UUID(int=100 + number))
            return sum(done.rows for done, _ in drain_harvest(own, None, stamp, 10))

    with ThreadPoolExecutor(8) as pool:
        done = [*pool.map(drain, range(8))]
    # What one passed over because another held it, and that one rolled back: nothing here.
    harvest.drain()

    found = harvest.counted()
    assert sum(done) == sum(found.values()) == harvest.marked() == len(codes)
    assert len(found) == CODES_MAX + 1
    assert all(count == 5 for code, count in found.items() if code != "other")
    assert found["other"] == 5 * CODES_MAX


def test_an_insert_that_commits_late_with_a_smaller_id_is_counted(harvest: Harvest) -> None:
    """Its id is behind all that was counted by then, and nobody remembers an id."""
    with psycopg.connect(harvest.url) as late:
        insert(late, "late")
        harvest.rejected("early")
        assert [r.code for r in harvest.drain()] == ["early"]
        late.commit()
    ids = harvest.rows("select code from maintenance.harvest_rejections order by id")
    assert [row["code"] for row in ids] == ["late", "early"]

    assert [r.code for r in harvest.drain()] == ["late"]
    assert harvest.counted() == {"late": 1, "early": 1}


def test_a_drain_that_dies_before_its_commit_has_counted_nothing(harvest: Harvest) -> None:
    harvest.rejected("a", "b")
    harvest.connection.execute("alter table maintenance.journal add constraint no check (false)")
    try:
        with pytest.raises(Exception, match="Postgres refused a row"):
            harvest.drain()
    finally:
        harvest.connection.execute("alter table maintenance.journal drop constraint no")

    assert harvest.marked() == 0
    assert harvest.rows("select * from maintenance.harvest_codes") == []
    harvest.drain()
    assert harvest.counted() == {"a": 1, "b": 1}


def test_the_same_event_is_refused_by_the_table_and_counts_once(harvest: Harvest) -> None:
    """The server says ON CONFLICT DO NOTHING: a retried insert is the same event."""
    for _ in range(3):
        harvest.connection.execute(
            "insert into maintenance.harvest_rejections (event_id, scope, code)"
            " values ('e1', 's', 'a') on conflict (event_id) do nothing"
        )
        harvest.drain()
    with pytest.raises(psycopg.errors.UniqueViolation):
        harvest.connection.execute(
            "insert into maintenance.harvest_rejections (event_id, code) values ('e1', 'b')"
        )
    harvest.rejected("a", "a", event_id=None)
    harvest.drain()

    assert harvest.counted() == {"a": 3}


def test_the_server_needs_no_more_than_insert(harvest: Harvest) -> None:
    """A role that may insert there, and do nothing else in the schema, is enough."""
    harvest.connection.execute(
        "drop role if exists harvesting; create role harvesting;"
        "grant usage on schema maintenance to harvesting;"
        "grant insert on maintenance.harvest_rejections to harvesting"
    )
    try:
        with psycopg.connect(harvest.url, autocommit=True) as server:
            server.execute("set role harvesting")
            insert(server, "a", event_id=None)
            server.execute(
                "insert into maintenance.harvest_rejections (event_id, code) values ('e', 'a')"
                " on conflict do nothing"
            )
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                server.execute("select * from maintenance.harvest_rejections")
        harvest.drain()
        assert harvest.counted() == {"a": 2}
    finally:
        harvest.connection.execute("drop owned by harvesting; drop role harvesting")


def test_an_example_is_the_oldest_of_its_kind_and_cut(harvest: Harvest) -> None:
    harvest.rejected("a", detail="x" * 10_000, session_id="t" * 10_000, occurred_at=NOW - 5)
    harvest.rejected("a", detail="second")

    [found] = harvest.drain()

    assert (found.count, found.occurred_at) == (2, NOW - 5)
    assert found.detail == "x" * 500
    assert found.session_id == "t" * 200


def test_counted_rows_go_after_their_retention_and_others_stay(harvest: Harvest) -> None:
    """Two that were counted a day and a second ago, one a second less than a day ago."""
    day = DAY // timedelta(milliseconds=1)
    for scope, counted_at in (("s", NOW - day - 1), ("t", NOW - day - 1), ("s", NOW - day)):
        harvest.rejected("a", scope=scope)
        harvest.drain(now=counted_at)
    harvest.rejected("never_counted", occurred_at=1)

    assert harvest.prune(["t"]) == 1
    assert harvest.prune(batch_max=1) == 1
    assert harvest.prune() == 0

    left = harvest.rows("select code, counted_at from maintenance.harvest_rejections order by id")
    assert [(row["code"], row["counted_at"]) for row in left] == [
        ("a", NOW - day),
        ("never_counted", None),
    ]
    assert harvest.counted() == {"a": 3}


@pytest.mark.parametrize("seed", range(6))
def test_a_dry_run_says_what_the_drain_then_does(harvest: Harvest, seed: int) -> None:
    """Over random rows, codes that are none, too many of them, and scopes."""
    chance = random.Random(seed)
    for counted_at in (NOW - 3 * 86_400_000, NOW - 1000):
        for _ in range(40):
            harvest.rejected(f"c{chance.randrange(40)}", scope=chance.choice(["s", "t", None]))
        harvest.drain(now=counted_at)
    codes = [f"c{chance.randrange(200)}" for _ in range(120)] + [None, "BAD"] * 5
    for code in codes:
        harvest.rejected(code, scope=chance.choice(["s", "t", None]))
    before = harvest.counted()

    with harvest.database.transaction(read_only=True, snapshot=True) as tx:
        planned = preview_harvest(tx, None, NOW, DAY)
    assert harvest.counted() == before
    found = harvest.drain(batch_max=17)
    pruned = harvest.prune()

    said: Counter[tuple[str | None, str]] = Counter()
    for each in found:
        said[each.scope, each.code] += each.count
    assert said == {
        (scope, code): b.rows for (scope, arm, code), b in planned.items() if arm == "rejected"
    }
    assert pruned == sum(b.rows for (_, arm, _), b in planned.items() if arm == "pruned") == 40


def test_the_backlog_is_what_is_not_counted(harvest: Harvest) -> None:
    assert uncounted_rejections(harvest.database).rows == 0
    harvest.rejected("a")
    harvest.drain()
    harvest.rejected("a", "b", occurred_at=1000)

    found = uncounted_rejections(harvest.database)

    assert found.rows == 2
    assert found.oldest_ms > 1000


def test_two_drains_of_one_row_do_not_wait_for_each_other(harvest: Harvest) -> None:
    """One holds it; the other passes over it and ends."""
    harvest.rejected("a")
    with psycopg.connect(harvest.url) as holder:
        holder.execute("select * from maintenance.harvest_rejections for update")
        assert harvest.drain() == []
    wait_until(lambda: harvest.drain() != [], "the row let go")
    assert harvest.counted() == {"a": 1}


@pytest.fixture
def refused(harvest: Harvest) -> Iterator[Harvest]:
    """While this lasts, a rejection whose detail is a code gives that error when it is written."""
    harvest.connection.execute(
        "create function public.refuse() returns trigger language plpgsql as $$ declare"
        " met maintenance.harvest_rejections := case when tg_op = 'DELETE' then old else new end;"
        " begin if met.detail ~ '^[0-9A-Z]{5}$' then"
        " raise exception 'no' using errcode = met.detail; end if; return met; end $$"
    )
    harvest.connection.execute(
        "create trigger refuse before update or delete on maintenance.harvest_rejections"
        " for each row execute function public.refuse()"
    )
    try:
        yield harvest
    finally:
        harvest.connection.execute("drop trigger refuse on maintenance.harvest_rejections")
        harvest.connection.execute("drop function public.refuse()")


def test_a_rejection_that_cannot_be_counted_holds_up_no_other(refused: Harvest) -> None:
    """Whatever error it gives; it is passed over, counted as failing, and met again."""
    codes = ["P0001", "54000", "53200", "57P01", "57014", "42501", "25006", "23505"]
    for code in codes:
        refused.rejected(*["fine"] * 5)
        refused.rejected("bad", scope=code, detail=code)
    refused.rejected("fine", "bad", scope=None, detail="P0001")
    refused.rejected("fine")

    batches = [*drain_harvest(refused.database, None, Stamp(NOW, RUN), 16)]

    assert refused.counted() == {"fine": 5 * len(codes) + 1}
    passed = sum(done.by_kind.get(("skipped", "failing"), 0) for done, _ in batches)
    assert passed == len(codes) + 2
    failing = {scope: said for done, _ in batches for scope, said in done.failing.items()}
    assert {*failing} == {*codes, "(no scope)"}
    assert failing["54000"] == "Postgres reported: no"
    journaled = refused.rows(
        "select sum(count)::int as n from maintenance.journal"
        " where job = 'drain_harvest' and arm = 'skipped' and cause = 'failing'"
    )
    assert journaled == [{"n": passed}]

    refused.connection.execute("update maintenance.harvest_rejections set detail = 'mended'")
    assert sum(each.count for each in refused.drain()) == passed


def test_a_rejection_that_cannot_be_deleted_holds_up_no_other(refused: Harvest) -> None:
    """It is passed over, counted as failing, and its scope named; the run goes on behind it."""
    codes = ["P0001", "57014", "42501"]
    old = NOW - DAY // timedelta(milliseconds=1) - 1000
    for place, code in enumerate(codes):
        refused.rejected(*["fine"] * 5, counted_at=old + place)
        refused.rejected("bad", scope=code, detail=code, counted_at=old + place)
    refused.rejected("fine", counted_at=old + 10)

    batches = [*prune_harvest(refused.database, None, Stamp(NOW, RUN), DAY, 16)]

    assert sum(done.rows for done in batches) == 5 * len(codes) + 1
    failing = {scope: said for done in batches for scope, said in done.failing.items()}
    assert {*failing} == {*codes}
    passed = refused.rows("select arm, cause, count from maintenance.journal where arm = 'skipped'")
    assert passed == [{"arm": "skipped", "cause": "failing", "count": 1}] * len(codes)
    left = refused.rows("select scope from maintenance.harvest_rejections order by id")
    assert [row["scope"] for row in left] == codes


def test_what_no_rejection_can_be_deleted_for_ends_the_run(harvest: Harvest) -> None:
    harvest.rejected(*["fine"] * 5, counted_at=1)
    harvest.connection.execute("alter table maintenance.journal rename to elsewhere")
    try:
        with pytest.raises(StoreUnusable, match="journal"):
            harvest.prune()
    finally:
        harvest.connection.execute("alter table maintenance.elsewhere rename to journal")


def test_what_no_rejection_can_be_counted_for_ends_the_drain(harvest: Harvest) -> None:
    harvest.rejected(*["fine"] * 5)
    harvest.connection.execute("alter table maintenance.harvest_codes rename to elsewhere")
    try:
        with pytest.raises(StoreUnusable, match="harvest_codes"):
            harvest.drain()
    finally:
        harvest.connection.execute("alter table maintenance.elsewhere rename to harvest_codes")
    assert harvest.marked() == 0


def test_an_example_is_cut_to_what_a_log_bears(harvest: Harvest) -> None:
    """All texts of it: whoever inserts may write anything."""
    long = "x" * 1_000_000
    harvest.rejected(long, scope=long, session_id=long, detail=long)

    [found] = harvest.drain()

    texts = (found.scope, found.code, found.given, found.session_id, found.detail)
    assert [len(text or "") for text in texts] == [200, len("other"), 100, 200, 500]


@pytest.mark.parametrize("occurred_at", [-(2**63), 2**63 - 1])
def test_any_time_of_a_rejection_can_be_shown(harvest: Harvest, occurred_at: int) -> None:
    harvest.rejected("fine", occurred_at=occurred_at)

    oldest_ms = 2**63 - 1 if occurred_at < 0 else 0
    assert uncounted_rejections(harvest.database) == Backlog(1, oldest_ms)
    with harvest.database.transaction(read_only=True, snapshot=True) as tx:
        assert preview_harvest(tx, None, NOW, DAY) == {
            ("s", "rejected", "fine"): Backlog(1, oldest_ms)
        }
