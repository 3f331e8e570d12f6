"""Undo: a deleted row and its transcript come back as they were until the window ends, or not."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from decimal import Decimal
from random import Random
from uuid import uuid4

import pytest

from store import actions
from store.agents import PostgresAgentStore
from store.batches import Stamp
from store.database import Database
from store.errors import Held, NotRestorable
from store.holds import list_holds, place, release
from store.housekeeping import prune
from store.release_elsewhere import Answer, Key, release_elsewhere
from store.release_sessions import Drain
from store.statements import quoted
from store.undo import count_restorable, erase, restorable
from tests.conftest import Servers
from tests.ledgers import LAYOUTS, VERSIONS, Layout, create, fresh_database
from tests.store.undoing import ADA, SECOND, WINDOW, Undoing

DAY = timedelta(days=1)
HOUR_MS = 3_600_000
# Columns that no release knows. Behind a view they are there as well.
EXTRA = {
    "note": "text",
    "amount": "numeric",
    "share": "float8",
    "facts": "jsonb",
    "seen": "timestamptz[]",
    "bytes": "bytea",
    "100% \"odd\" name": "bigint",
    "a": "text",
}  # fmt: skip


@pytest.fixture
def undoing(ledger: tuple[str, Database]) -> Iterator[Undoing]:
    with closing(Undoing(*ledger)) as undoing:
        yield undoing


@pytest.fixture
def plain(plain_ledger: tuple[str, Database]) -> Iterator[Undoing]:
    """For what no layout changes."""
    with closing(Undoing(*plain_ledger)) as undoing:
        yield undoing


@pytest.fixture(params=[(v, layout) for v in VERSIONS for layout in LAYOUTS])
def wide(servers: Servers, request: pytest.FixtureRequest) -> Iterator[Undoing]:
    """A ledger with columns of its own."""
    version: str
    layout: Layout
    version, layout = request.param
    with (
        fresh_database(servers.url(version), f"sema_test_undo_{layout}") as url,
        create(url, layout) as database,
        closing(Undoing(url, database)) as undoing,
    ):
        widen(undoing)
        yield undoing


def widen(undoing: Undoing) -> None:
    table = f"{undoing.tables}.background_agents"
    for name, kind in EXTRA.items():
        undoing.do(f"alter table {table} add column {quoted(name)} {kind}")
    if undoing.tables == undoing.schema:
        undoing.do(f"alter table {table} add column doubled bigint generated always as"
                   " (coalesce(seq, 0) / 2) stored")  # fmt: skip
        [found] = undoing.query(
            "select relkind::text from pg_class where oid = %s::regclass", table
        )
        # WHY no other: Postgres 15 numbers no rows of a partitioned table.
        if found["relkind"] == "r":
            undoing.do(f"alter table {table} add column numbered bigint"
                       " generated always as identity")  # fmt: skip
        return
    also_seen(undoing, f"{', '.join(map(quoted, EXTRA))}, upper(owner) as loud")


def also_seen(undoing: Undoing, columns: str) -> None:
    """The view shows these as well."""
    [view] = undoing.query("select pg_get_viewdef('seen.background_agents'::regclass) as text")
    text = view["text"].rstrip().rstrip(";").replace("FROM", f", {columns} FROM")
    undoing.do(f"create or replace view seen.background_agents as {text}")


# Round trips

TEXTS = [None, "", "null", "naïve ✓", 'quo"te \\ %s {x}', "\t\n"]
NUMBERS = ["0", "1.10", "1.0", "-0.0", "9007199254740993", "9223372036854775807", "1e400", "1e-30"]


def document(random: Random, depth: int = 0) -> str:
    """Some JSON, spelled as no parser of floats would give it back."""
    made = random.randrange(7 if depth < 3 else 4)
    if made == 0:
        return random.choice(NUMBERS)
    if made == 1:
        return random.choice(["null", "true", "false", '""', "[]", "{}"])
    if made < 4:
        return random.choice(['"x"', '"naïve ✓"', r'"\u00e9\""', '"null"'])
    inner = [document(random, depth + 1) for _ in range(random.randrange(4))]
    if made < 6:
        return f"[{', '.join(inner)}]"
    return "{" + ", ".join(f'"m {n}": {each}' for n, each in enumerate(inner)) + "}"


def content(random: Random) -> str:
    known = ["summary", "error", "usage", "finalOutput", "admittedOrgWriteScope"]
    members = random.sample([*known, "futureMember", "", "rev", "scope"], random.randrange(6))
    return "{" + ", ".join(f'"{each}": {document(random)}' for each in members) + "}"


def drawn(random: Random, number: int) -> dict[str, object]:
    """A finished row with anything in it."""

    def text() -> str | None:
        return random.choice(TEXTS)

    def count() -> int | None:
        return random.choice([None, 0, 2**63 - 2])

    session = None if number % 4 == 0 else f"session {number}"
    return {
        "scope": random.choice(["s", "s ✓", "t/u"]),
        "handle": f"h {number} {random.choice(['', 'é', '%s', 'quo' + chr(34)])}",
        "rev": random.choice([0, 1, 2**53 + 1, 2**63 - 2]),
        "status": random.choice(["completed", "failed", "killed"]),
        "owner": "o",
        "session_scoped": random.random() < 0.5,
        "session_id": session,
        "parent_session_id": text(),
        "root_session_id": text(),
        "parent_task_id": text(),
        "name": text(),
        "agent_type": text(),
        "description": text(),
        "model": text(),
        "writer_id": "w ✓",
        "writer_epoch": random.choice([None, 0, 3, 2**63 - 2]),
        "spawned_at": random.choice([-(2**63), 1]),
        "updated_at": random.choice([5, 2**53 + 1]) if number % 5 else 7,
        "settled_at": random.choice([-5, 1_000]) if number % 5 else None,
        "stopped_by": text(),
        "completion_id": text(),
        "seq": count(),
        "parked_checkpoint_token": text(),
        "parked_at": count(),
        "park_claim_id": text(),
        "content": content(random) if number % 9 else "null",
        "note": text(),
        "amount": random.choice([None, Decimal("1.10"), Decimal("NaN"), Decimal(10**40)]),
        "share": random.choice([None, 0.1, float("inf"), float("nan"), 1e-320]),
        "facts": random.choice([None, content(random), "[]", '""']),
        "seen": random.choice([None, "{}", "{2026-12-01 00:00:00.123456+00,infinity,NULL}"]),
        "bytes": random.choice([None, b"", b"\x00\xff"]),
        '100% "odd" name': count(),
        "a": text(),
    }


def test_what_comes_back_is_what_went_but_for_revision_and_epoch(wide: Undoing) -> None:
    """Random rows, with members and columns that no release knows, to the last digit."""
    random = Random(20_261_201)
    for number in range(60):
        row = drawn(random, number)
        names = ", ".join(map(quoted, row)).replace("%", "%%")
        wide.do(
            f"insert into {wide.schema}.background_agents ({names})"
            f" values ({', '.join(['%s'] * len(row))})",
            *row.values(),
        )
        if row["session_id"] is not None:
            wide.talk(str(row["session_id"]), scope=str(row["scope"]))
    before, talks = wide.spelled(), wide.talks()

    assert wide.reap() == 60
    assert wide.handles() == []
    for scope, handle in before:
        back = wide.restore(handle, scope)
        was = before[scope, handle]
        assert back.rev == int(was["rev"] or 0) + 1
        assert back.writer_epoch == int(was["writer_epoch"] or 0) + 1

    after = wide.spelled()
    for key, was in before.items():
        is_now = after[key]
        assert {**is_now, "rev": "", "writer_epoch": ""} == {**was, "rev": "", "writer_epoch": ""}
    assert wide.talks() == talks
    assert wide.kept("handle") == []
    assert wide.drain(DAY) == {}


def test_an_export_of_what_came_back_is_the_same(undoing: Undoing) -> None:
    """Absent, null and empty stay what they were, also where a row is read by its members."""
    undoing.row("a", content="""'{"summary": "", "error": null, "x": {"y": [null, 1.10]}}'""")
    [before] = lines(undoing)
    undoing.reap()

    undoing.restore("a")

    [after] = lines(undoing)
    assert '"y": [null, 1.10]' in after
    assert after.replace('"rev": 8', '"rev": 7').replace(', "writerEpoch": 1', "") == before


def lines(undoing: Undoing) -> list[str]:
    with undoing.database.transaction(read_only=True) as tx:
        return [row["line"] for row in tx.rows("export_agents", {"scopes": None})]


def test_a_column_that_is_gone_and_one_that_came(plain: Undoing) -> None:
    """A value that the ledger has no room for any more keeps the row from coming back."""
    table = "public.background_agents"
    plain.do(f"alter table {table} add column colour text")
    try:
        plain.row("a", colour="'red'")
        plain.row("b")
        plain.reap()
        plain.do(f"alter table {table} drop column colour")
        plain.do(f"alter table {table} add column shade text not null default 'dark'")

        with pytest.raises(NotRestorable, match="it had a value in 'colour', which the ledger has"):
            plain.restore("a")
        plain.restore("b")

        assert [row["shade"] for row in plain.spelled().values()] == ["dark"]
        assert [handle for (handle,) in plain.kept("handle")] == ["a"]
    finally:
        plain.do(f"alter table {table} drop column if exists colour")
        plain.do(f"alter table {table} drop column if exists shade")


def test_a_view_over_a_computed_column_says_so(servers: Servers) -> None:
    with (
        fresh_database(servers.url("18"), "sema_test_undo_computed") as url,
        create(url, "view") as database,
        closing(Undoing(url, database)) as undoing,
    ):
        undoing.do(
            "alter table kept.background_agents add column twice bigint"
            " generated always as (coalesce(seq, 0) * 2) stored"
        )
        also_seen(undoing, "twice")
        undoing.row("a")
        undoing.reap()

        with pytest.raises(NotRestorable, match="is computed by Postgres, which lets"):
            undoing.restore("a")

        assert undoing.kept("handle") == [("a",)]


# What is kept


def test_without_a_window_nothing_is_kept(undoing: Undoing) -> None:
    """A row without a transcript queues nothing, and no entry has anything in its new columns."""
    undoing.row("a", "x")
    undoing.row("b")

    assert undoing.reap(None) == 2

    assert undoing.kept("handle", "state", "record", "restorable_until") == [
        ("a", "pending", None, None)
    ]
    assert restorable(undoing.database, None, 10) == []
    with pytest.raises(NotRestorable, match="nothing is kept of it; `restore --list` shows"):
        undoing.restore("a")


@pytest.mark.parametrize(
    ("delay", "window", "due", "until"), [(600, 3600, 3600, 3600), (7200, 3600, 7200, 3600)]
)
def test_a_release_waits_for_the_delay_and_for_the_window(
    undoing: Undoing, delay: int, window: int, due: int, until: int
) -> None:
    undoing.row("a", "x")
    undoing.reap(window * SECOND, delay * SECOND)

    [(found_due, found_until)] = undoing.kept(
        "(not_before - queued_at + 5) / 10", "(restorable_until - queued_at + 5) / 10"
    )

    assert (found_due, found_until) == (due * 100, until * 100)


def test_a_deletion_by_the_store_keeps_nothing(undoing: Undoing) -> None:
    undoing.row("a", "x")

    assert PostgresAgentStore(undoing.database).delete("a", "s")

    assert undoing.kept("handle") == []


def test_a_row_without_a_transcript_is_no_release(undoing: Undoing) -> None:
    """No drain takes or counts it, and it goes when its window is over."""
    undoing.row("a")
    undoing.reap()
    agents = PostgresAgentStore(undoing.database)

    assert undoing.drain(DAY) == {}
    assert undoing.drop(DAY) == 0
    assert agents.list_releases("s") == []
    assert undoing.kept("handle", "session_id", "state") == [("a", None, "kept")]

    assert tidied(undoing, undoing.now() + HOUR_MS - 60_000) == 0
    assert tidied(undoing, undoing.now() + HOUR_MS) == 1
    assert undoing.kept("handle") == []


def tidied(undoing: Undoing, now: int) -> int:
    batches = prune(undoing.database, now, DAY, 1)
    return sum(batch.rows for batch in batches if batch.what == "kept")


@pytest.mark.parametrize("state", ["dead", "suspect"])
def test_what_is_kept_goes_with_its_window_though_the_release_does_not(
    plain: Undoing, state: str
) -> None:
    plain.row("a", "x")
    plain.reap()
    plain.do("update maintenance.session_releases set state = %s", state)

    assert tidied(plain, plain.now() + HOUR_MS + 1000) == 1

    assert plain.kept("handle", "state", "record") == [("a", state, None)]
    assert tidied(plain, plain.now() + HOUR_MS + 1000) == 0


def test_the_list_has_what_can_be_restored(plain: Undoing) -> None:
    """The newest deletion of a name, of one scope or of all, and nothing whose window is over."""
    for scope in ("s", "t"):
        plain.row("a", "x", scope)
        plain.row("b", scope=scope)
    plain.reap()
    plain.row("a", "y")
    plain.reap()
    plain.do("update maintenance.session_releases set restorable_until = 1"
             " where scope = 't' and handle = 'b'")  # fmt: skip

    found = restorable(plain.database, None, 10)

    assert {(k.scope, k.handle, k.session_id) for k in found} == {
        ("s", "a", "y"),
        ("s", "b", None),
        ("t", "a", "x"),
    }
    assert found[0].session_id == "y"
    assert {k.scope for k in restorable(plain.database, "t", 10)} == {"t"}
    assert len(restorable(plain.database, None, 2)) == 2
    assert {k.status for k in found} == {"completed"}
    assert count_restorable(plain.database) == 4


# The way back


def test_a_restored_row_is_held_and_on_record(undoing: Undoing) -> None:
    """The next reap leaves it alone, until its hold is released."""
    undoing.row("a", "x")
    undoing.talk("x")
    undoing.reap()

    back = undoing.restore("a")

    [hold] = list_holds(undoing.database, None, 10, over_too=False)
    assert (hold.id, hold.scope, hold.handle) == (back.hold, "s", "a")
    assert (hold.reason, hold.placed_by, hold.ends_at) == ("restored", ADA, None)
    [_, act] = sorted(actions.newest(undoing.database, None, 10), key=lambda a: a.action)
    assert (act.action, act.actor, act.scope, act.handle) == ("restore", ADA, "s", "a")
    assert act.detail == {"rev": 8, "session": "x", "hold": back.hold}
    [row] = undoing.query("select * from maintenance.journal where job = 'restore'")
    assert (row["scope"], row["arm"], row["cause"], row["count"]) == ("s", "restored", None, 1)
    assert undoing.reap() == 0
    assert undoing.handles() == ["a"]

    release(undoing.database, back.hold, ADA)
    assert undoing.reap() == 1
    assert undoing.restore("a").rev == 9


def test_a_name_that_is_taken_again_is_refused(undoing: Undoing) -> None:
    undoing.row("a", "x")
    undoing.talk("x")
    undoing.reap()
    undoing.row("a", rev="1")

    with pytest.raises(NotRestorable, match="an agent of that name is there again"):
        undoing.restore("a")

    assert [row["rev"] for row in undoing.spelled().values()] == ["1"]
    assert undoing.kept("handle") == [("a",)]
    assert list_holds(undoing.database, None, 10, over_too=False) == []
    assert actions.newest(undoing.database, None, 10) == []


def test_of_several_of_one_name_the_newest_comes_back(undoing: Undoing) -> None:
    for session in ("x", "y"):
        undoing.row("a", session)
        undoing.talk(session)
        undoing.reap()

    assert undoing.restore("a").session_id == "y"

    assert undoing.kept("session_id") == [("x",)]


def test_a_transcript_that_is_gone_or_going_is_refused(undoing: Undoing) -> None:
    """One that another system has cannot be looked for, and whoever was asked for it may be."""
    undoing.row("a", "x")
    undoing.reap()
    with pytest.raises(NotRestorable, match="its transcript 'x' is gone"):
        undoing.restore("a")

    undoing.do("update maintenance.session_releases set attempts = 1")
    with pytest.raises(NotRestorable, match="asked to delete its transcript 'x', which may"):
        undoing.restore("a", backend="http")

    undoing.do("update maintenance.session_releases set claim_id = gen_random_uuid()")
    with pytest.raises(NotRestorable, match="its transcript 'x' is being released"):
        undoing.restore("a", backend="http")

    undoing.do("update maintenance.session_releases set claim_id = null, attempts = 0")
    assert undoing.restore("a", backend="http").session_id == "x"


def test_after_the_window_it_is_refused(plain: Undoing) -> None:
    """A second on either side of it."""
    for handle in ("a", "b"):
        plain.row(handle)
    plain.reap()
    plain.do("update maintenance.session_releases set restorable_until = queued_at - 1000"
             " where handle = 'a'")  # fmt: skip

    with pytest.raises(NotRestorable, match=r"its undo window ended at \d{4}-.* UTC"):
        plain.restore("a")

    assert plain.restore("b").handle == "b"


def test_a_revision_that_has_no_next_is_refused(plain: Undoing) -> None:
    plain.row("a", rev=str(2**63 - 1))
    plain.reap()

    with pytest.raises(Exception, match="out of range"):
        plain.restore("a")

    assert plain.kept("handle") == [("a",)]


def test_a_shared_transcript_stays_while_one_of_its_rows_may_come_back(undoing: Undoing) -> None:
    """The entry that is due waits for the other's window; then both go with the transcript."""
    undoing.talk("shared")
    undoing.row("early", "shared")
    undoing.reap(None)
    undoing.row("late", "shared")
    undoing.reap()

    assert undoing.drain(SECOND) == {"skipped/undo": 1}
    assert undoing.talks() == ["shared"]
    [(due, _), (_, until)] = undoing.kept("not_before", "restorable_until")
    assert due == until
    [row] = undoing.query("select cause, count from maintenance.journal where arm = 'skipped'")
    assert (row["cause"], row["count"]) == ("undo", 1)

    assert undoing.drain(WINDOW + SECOND) == {"released": 1}
    assert undoing.talks() == []
    assert undoing.kept("handle") == []


class Asked:
    """Another system, which deletes what it is asked for."""

    at_a_time = 4

    def __init__(self) -> None:
        self.keys: list[Key] = []

    def release(self, keys: Sequence[Key]) -> list[Answer]:
        self.keys += keys
        return [Answer("released")] * len(keys)

    def close(self) -> None:
        pass


def test_another_system_is_not_asked_for_what_a_row_may_come_back_to(plain: Undoing) -> None:
    plain.row("early", "shared")
    plain.reap(None)
    plain.row("late", "shared")
    plain.row("b", "own")
    plain.row("c")
    plain.reap()
    asked = Asked()

    def ask(after: timedelta) -> list[dict[tuple[str, str | None], int]]:
        stamp = Stamp(plain.now() + after // timedelta(milliseconds=1), uuid4())
        batches = release_elsewhere(plain.database, asked, None, stamp, Drain(), uuid4, lambda: 0.0)
        return [dict(done.by_kind) for done in batches]

    assert ask(SECOND) == [{("skipped", "undo"): 1}]
    assert asked.keys == []
    assert plain.restore("late", backend="http").session_id == "shared"

    ask(WINDOW + SECOND)
    assert asked.keys == [("s", "own")]
    assert plain.kept("handle") == [("c",)]


# Erase


def test_erase_lets_go_of_one_scope_at_once(undoing: Undoing) -> None:
    for scope in ("s", "t"):
        undoing.row("a", "x", scope)
        undoing.row("b", scope=scope)
        undoing.talk("x", scope=scope)
    undoing.reap(delay=timedelta(minutes=10))

    assert sum(erase(undoing.database, "s", ADA, batch=1)) == 2

    assert sorted(undoing.kept("scope", "handle", "record is null")) == [
        ("s", "a", True),
        ("t", "a", False),
        ("t", "b", False),
    ]
    assert undoing.drain(SECOND) == {"released": 1}
    acts = actions.newest(undoing.database, None, 10)
    assert [(a.action, a.actor, a.scope, a.detail) for a in acts] == [
        ("erase", ADA, "s", {"records": 1})
    ] * 2
    [row] = undoing.query("select sum(count) as n from maintenance.journal where job = 'erase'")
    assert row["n"] == 2
    assert [*erase(undoing.database, "s", ADA)] == []


def test_erase_is_refused_while_anything_of_it_is_held(undoing: Undoing) -> None:
    """A hold on the scope, or on a row that is kept; one on any other row is none of its."""
    undoing.row("a")
    undoing.row("b", scope="t")
    undoing.reap()
    other = place(undoing.database, "s", "z", "other", ADA)
    on_row = place(undoing.database, "s", "a", "case 1", ADA)
    on_scope = place(undoing.database, "s", None, "case 2", ADA)

    with pytest.raises(Held) as refused:
        [*erase(undoing.database, "s", ADA)]

    assert str(refused.value) == (
        f"'s' keeps what can be restored: hold {on_row.id} lies on 'a' (case 1, placed by {ADA}), "
        f"hold {on_scope.id} lies on the scope (case 2, placed by {ADA}); release them first"
    )
    assert [*erase(undoing.database, "t", ADA)] == [1]
    for hold in (on_row, on_scope):
        release(undoing.database, hold.id, ADA)
    assert [*erase(undoing.database, "s", ADA)] == [1]
    assert other.id
