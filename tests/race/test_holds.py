"""After "placed" nothing that is held goes, by whatever path, and however the two met."""

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from threading import Event
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from store.agents import PostgresAgentStore
from store.batches import BatchSize, Stamp
from store.database import Limits
from store.errors import Held, InvalidHold, NoSuchHold, TimedOut
from store.guards import UNGUARDED, Guards
from store.holds import Hold, list_holds, place, release
from store.reap import preview_reap
from store.release_elsewhere import release_elsewhere
from store.release_sessions import HOLD_PAUSE, Drain
from store.retention import RetentionPolicy
from store.sessions import PostgresSessionStore
from tests.race.background import Background, await_condition
from tests.race.conftest import Crew
from tests.race.jobs import HASTY, PATIENT, Jobs, SteppedDatabase
from tests.race.rows import LONG_AGO, NOW, Rows
from tests.race.writer import Writer
from tests.transcript_system import transcript_system
from worker.release_http import HttpRelease

AGE = 60_000
HELD = "reap/skipped/hold"
PAUSE_MS = HOLD_PAUSE // timedelta(milliseconds=1)
ONE_ROW = BatchSize(rows=1, scopes=1)
# What deletes everything that is finished, by each arm.
ARMS = [("max_age", {"max_age_ms": AGE}), ("keep", {"keep": 0})]
# With every guard, and as with `--override all`.
GUARDED = [Guards(plausible_times=False), UNGUARDED]


class Placer:
    """Somebody who places holds, on connections of their own."""

    def __init__(self, database: SteppedDatabase, rows: Rows) -> None:
        self.database = database
        self._rows = rows

    def place(self, scope: str = "s", handle: str | None = None, **how: Any) -> Hold:
        return place(self.database, scope, handle, "case 4711", "ada@desk", **how)

    def start(self, scope: str = "s", handle: str | None = None) -> Background[Hold]:
        return Background(lambda: self.place(scope, handle), self._rows, self.database.application)

    def in_force(self) -> list[Hold]:
        return list_holds(self.database, None, 1000, over_too=False)


@pytest.fixture
def placer(crew: Crew, rows: Rows) -> Placer:
    return Placer(crew.jobs(PATIENT, "placer").database, rows)


def dry_run(jobs: Jobs, guards: Guards = UNGUARDED, **policy: Any) -> dict[str, int]:
    with jobs.database.transaction(read_only=True, snapshot=True) as tx:
        found = preview_reap(tx, [("s", RetentionPolicy(**policy))], NOW, guards)
    return {
        "/".join(filter(None, ("reap", arm, cause))): backlog.rows
        for (_, arm, cause), backlog in found.items()
    }


@pytest.mark.parametrize("guards", GUARDED, ids=["guarded", "all lifted"])
@pytest.mark.parametrize(("arm", "policy"), ARMS, ids=[arm for arm, _ in ARMS])
def test_what_is_held_stays_and_is_counted(
    rows: Rows, jobs: Jobs, placer: Placer, arm: str, policy: dict[str, Any], guards: Guards
) -> None:
    """A row with a settling time, one without, and a whole scope; the dry run says the same."""
    rows.finished("a", "b", "c")
    rows.agent("without", settled_at=None)
    rows.agent("without, held", settled_at=None)
    rows.finished("d", "e", scope="t")
    for handle in ("b", "without, held", "not there"):
        placer.place("s", handle)
    placer.place("t")
    expected = {f"reap/{arm}": 3, HELD: 2}
    assert dry_run(jobs, guards, **policy) == expected

    assert jobs.reap(**policy, guards=guards) == expected
    assert jobs.reap(**policy, guards=guards, scopes=["t"]) == {HELD: 2}

    assert (rows.handles("s"), rows.handles("t")) == (["b", "without, held"], ["d", "e"])
    assert rows.queued("t") == []


def test_held_rows_take_their_place_among_those_that_are_kept(
    rows: Rows, jobs: Jobs, placer: Placer
) -> None:
    rows.finished("a", "b", "c", "d")
    placer.place("s", "a")
    placer.place("s", "d")

    assert jobs.reap(keep=2) == {"reap/keep": 1, HELD: 1}

    assert rows.handles() == ["a", "c", "d"]


@pytest.mark.parametrize(("arm", "policy"), ARMS, ids=[arm for arm, _ in ARMS])
def test_a_hold_on_a_scope_counts_no_row_again_that_was_held_by_itself(
    rows: Rows, jobs: Jobs, placer: Placer, arm: str, policy: dict[str, Any]
) -> None:
    """Placed in the middle of a run, behind two rows that were met and one that is gone."""
    jobs.size = BatchSize(rows=3, scopes=1)
    rows.finished(*"abcdef")
    for handle in "abe":
        placer.place("s", handle)
    begins = jobs.database.before
    begins("share_holds", lambda: begins("share_holds", lambda: placer.place("s")))

    assert jobs.reap(**policy) == {f"reap/{arm}": 1, HELD: 5}

    assert rows.handles() == [*"abdef"]


def test_a_row_is_counted_once_though_both_arms_would_take_it(
    rows: Rows, jobs: Jobs, placer: Placer
) -> None:
    rows.finished("a", "b")
    placer.place("s", "a")

    assert dry_run(jobs, max_age_ms=AGE, keep=0) == {"reap/max_age": 1, HELD: 1}
    assert jobs.reap(max_age_ms=AGE, keep=0) == {"reap/max_age": 1, HELD: 1}


def test_a_batch_full_of_held_rows_hides_nothing_behind_it(
    rows: Rows, jobs: Jobs, placer: Placer
) -> None:
    jobs.size = BatchSize(rows=2, scopes=1)
    rows.finished(*"abcdefg")
    for handle in "abcd":
        placer.place("s", handle)

    assert jobs.reap(max_age_ms=AGE) == {"reap/max_age": 3, HELD: 4}


def test_breakers_count_no_held_row_as_due(rows: Rows, jobs: Jobs, placer: Placer) -> None:
    rows.finished(*"abcd")
    placer.place("s", "d")
    guards = Guards(breaker_rows=2, plausible_times=False)

    counted = jobs.reap(max_age_ms=AGE, guards=guards)

    assert counted == {"reap/max_age": 2, "reap/skipped/breaker": 1}
    placer.place("s")
    assert jobs.reap(max_age_ms=AGE, guards=guards) == {"reap/skipped/breaker": 1}
    assert dry_run(jobs, guards, max_age_ms=AGE) == {"reap/skipped/breaker": 1}
    assert jobs.reap(max_age_ms=AGE) == {HELD: 2}


def test_a_batch_that_goes_past_locks_leaves_what_is_held(
    rows: Rows, writer: Writer, hasty_jobs: Jobs, placer: Placer
) -> None:
    rows.finished("a", "b", "c")
    placer.place("s", "b")
    writer.begin_touch("a")

    counted = hasty_jobs.reap(max_age_ms=AGE)

    assert hasty_jobs.database.ran["reap_past_locks"] == 1
    assert counted == {"reap/max_age": 1, "reap/lost_race": 1, HELD: 1}
    assert rows.handles() == ["a", "b"]


@pytest.mark.parametrize("handle", [None, "b"], ids=["scope", "row"])
def test_hold_is_not_placed_before_a_delete_that_waits_for_a_row_is_over(
    rows: Rows, writer: Writer, jobs: Jobs, placer: Placer, handle: str | None
) -> None:
    """The delete knows of no hold. It ends first; the next batch begins when the hold is there."""
    jobs.size = ONE_ROW
    rows.finished("a", "b")
    writer.begin_touch("a")
    reaping = jobs.start(jobs.reap, max_age_ms=AGE)
    reaper = reaping.waits_for(writer.pid)

    placing = placer.start("s", handle)
    placing.waits_for(reaper)
    assert rows.scalar("select count(*) from maintenance.holds") == 0
    writer.rollback()

    assert placing.result().in_force
    assert reaping.result() == {"reap/max_age": 1, HELD: 1}
    assert rows.handles() == ["b"]


@pytest.mark.parametrize("statement", ["reap", "reap_unsettled"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_hold_waits_for_a_batch_that_is_about_to_delete_or_to_commit(
    rows: Rows, jobs: Jobs, placer: Placer, statement: str, moment: str
) -> None:
    rows.finished("a")
    rows.agent("without", settled_at=None)
    placing: list[Background[Hold]] = []

    def begins() -> None:
        placing.append(placer.start())
        placing[0].waits_for(jobs.database.backend_pid)

    getattr(jobs.database, moment)(statement, begins)

    counted = jobs.reap(max_age_ms=AGE)

    assert placing[0].result().in_force
    if statement == "reap":
        assert counted == {"reap/max_age": 1, HELD: 1}
        assert rows.handles() == ["without"]
    else:
        assert counted == {"reap/max_age": 2}
        assert rows.handles() == []


@pytest.mark.parametrize("handle", [None, "a"], ids=["scope", "row"])
def test_hold_placed_just_before_a_batch_begins_is_seen_by_it(
    rows: Rows, jobs: Jobs, placer: Placer, handle: str | None
) -> None:
    rows.finished("a")
    jobs.database.before("share_holds", lambda: placer.place("s", handle))

    assert jobs.reap(max_age_ms=AGE) == {HELD: 1}


def test_whoever_deletes_waits_for_a_placing_under_way_and_fails_nowhere(
    ledger_url: str, rows: Rows, crew: Crew
) -> None:
    """Even where no lock of a row is waited for longer than a moment."""
    rows.finished("a", "b")
    rows.finished("c", scope="t")
    hasty = crew.jobs(HASTY, "hasty")
    with psycopg.connect(ledger_url) as placing:
        placing.execute("select pg_advisory_xact_lock(hashtextextended('maintenance.holds', 0))")
        reaping = hasty.start(hasty.reap, max_age_ms=AGE, scopes=["s", "t"])
        reaping.pauses()
        placing.execute(
            "insert into maintenance.holds (scope, handle, reason, placed_by, placed_at)"
            " values ('s', 'b', 'why', 'ada', 0)"
        )

    assert reaping.result() == {"reap/max_age": 2, HELD: 1}
    assert rows.scalar("select count(*) from maintenance.failing_scopes") == 0


def test_hold_that_cannot_be_placed_in_time_says_so_and_holds_nothing(
    rows: Rows, writer: Writer, jobs: Jobs, crew: Crew
) -> None:
    rows.finished("a")
    short = Limits(statement_timeout=timedelta(milliseconds=200))
    placer = Placer(crew.jobs(short, "short placer").database, rows)
    writer.begin_touch("a")
    reaping = jobs.start(jobs.reap, max_age_ms=AGE)
    reaping.waits_for(writer.pid)

    with pytest.raises(TimedOut, match=r"^nothing was placed: .*; try again$"):
        placer.place()

    writer.rollback()
    assert reaping.result() == {"reap/max_age": 1}
    assert placer.in_force() == []


def test_the_store_deletes_nothing_that_is_held(
    rows: Rows, agents: PostgresAgentStore, placer: Placer
) -> None:
    rows.finished("a", "b")
    rows.finished("c", scope="t")
    rows.running("d")
    placer.place("s", "a")
    placer.place("t")

    for rev in (None, 1):
        with pytest.raises(Held, match=r"'s' keeps its agent 'a': hold \d+ lies on it, placed by"):
            agents.delete("a", "s", rev)
        with pytest.raises(Held, match=r"hold \d+ lies on its scope, placed by ada@desk \(case"):
            agents.delete("c", "t", rev)

    assert agents.delete("a", "s", 2) is False
    assert agents.delete("not there", "t") is False
    assert agents.delete("b", "s", 1) is True
    assert agents.delete("d", "s") is True
    assert (rows.handles("s"), rows.handles("t")) == (["a"], ["c"])


def test_hold_is_not_placed_before_the_stores_own_delete_is_over(
    rows: Rows, writer: Writer, jobs: Jobs, agents: PostgresAgentStore, placer: Placer
) -> None:
    rows.finished("a", "b")
    writer.begin_touch("a")
    deleting = Background(lambda: agents.delete("a", "s"), rows, jobs.database.application)
    deleter = deleting.waits_for(writer.pid)

    placing = placer.start()
    placing.waits_for(deleter)
    writer.rollback()

    assert deleting.result() is True
    assert placing.result().in_force
    with pytest.raises(Held):
        agents.delete("b", "s")


@pytest.mark.parametrize(
    ("handle", "on"),
    [
        (None, "its scope"),
        ("names it", "its agent 'names it'"),
        ("row of a", "its agent 'row of a'"),
    ],
    ids=["scope", "row", "row that is gone"],
)
def test_the_store_deletes_no_transcript_of_what_is_held(
    rows: Rows, jobs: Jobs, placer: Placer, handle: str | None, on: str
) -> None:
    """Of a row that names it, or of a deleted one whose release is queued."""
    sessions = PostgresSessionStore(jobs.database)
    for session in ("a", "b"):
        rows.session(session)
    rows.agent("names it", session_id="a")
    rows.queue("a")
    hold = placer.place("s", handle)

    said = f"'s' keeps its transcript 'a': hold {hold.id} lies on {on}, placed by ada"
    with pytest.raises(Held, match=said):
        sessions.delete("a", "s", LONG_AGO)

    assert sessions.delete("a", "s", LONG_AGO - 1) is False
    assert sessions.delete("not there", "s", LONG_AGO) is False
    if handle is not None:
        assert sessions.delete("b", "s", LONG_AGO) is True
    release(placer.database, hold.id, "ada@desk")
    assert sessions.delete("a", "s", LONG_AGO) is True


def test_hold_is_not_placed_before_the_stores_delete_of_a_transcript_is_over(
    rows: Rows, writer: Writer, jobs: Jobs, placer: Placer
) -> None:
    """The delete knows of no hold and waits for a writer; "placed" is said when it has ended."""
    sessions = PostgresSessionStore(jobs.database)
    for session in ("a", "b"):
        rows.session(session)
    writer.begin_transcript("a")
    deleting = Background(
        lambda: sessions.delete("a", "s", LONG_AGO), rows, jobs.database.application
    )
    deleter = deleting.waits_for(writer.pid)

    placing = placer.start()
    placing.waits_for(deleter)
    writer.rollback()

    assert deleting.result() is True
    assert placing.result().in_force
    with pytest.raises(Held):
        sessions.delete("b", "s", LONG_AGO)
    assert rows.transcripts() == ["b"]


@pytest.mark.parametrize("handle", [None, "row of a"], ids=["scope", "row"])
def test_transcripts_of_what_is_held_stay_until_the_hold_is_released(
    rows: Rows, jobs: Jobs, placer: Placer, handle: str | None
) -> None:
    """Looked at again later, as often as it takes: no attempt is used up."""
    drain = Drain(attempts=1)
    for session, scope in (("a", "s"), ("b", "t")):
        rows.session(session, scope)
        rows.queue(session, scope=scope)
    hold = placer.place("s", handle)

    counted = jobs.release(drain=drain, scopes=["s", "t"])

    assert counted == {"release_sessions/skipped/hold": 1, "release_sessions/released": 1}
    assert (rows.transcripts("s"), rows.transcripts("t")) == (["a"], [])
    left = rows.query(
        "select state, attempts, claim_id, claimed_until, not_before"
        " from maintenance.session_releases"
    )
    later = {"state": "pending", "attempts": 0, "claim_id": None, "claimed_until": None}
    assert left == [{**later, "not_before": NOW + PAUSE_MS}]
    assert jobs.release(NOW + PAUSE_MS - 1, drain) == {}
    assert jobs.release(NOW + PAUSE_MS, drain) == {"release_sessions/skipped/hold": 1}

    release(placer.database, hold.id, "ada@desk")

    assert jobs.release(NOW + 2 * PAUSE_MS, drain) == {"release_sessions/released": 1}
    assert rows.transcripts("s") == []


def test_a_transcript_that_two_rows_had_stays_for_the_one_that_is_held(
    rows: Rows, jobs: Jobs, placer: Placer
) -> None:
    rows.session("a")
    rows.queue("a", "a")
    rows.query(
        "update maintenance.session_releases set handle = 'other'"
        " where id = (select min(id) from maintenance.session_releases) returning id"
    )
    placer.place("s", "other")

    assert jobs.release() == {"release_sessions/skipped/hold": 2}
    assert rows.transcripts() == ["a"]


def test_hold_placed_while_transcripts_are_in_hand_comes_before_or_after_them(
    rows: Rows, jobs: Jobs, placer: Placer
) -> None:
    for session in ("a", "b"):
        rows.session(session)
        rows.queue(session)
    placing: list[Background[Hold]] = []

    def begins() -> None:
        placing.append(placer.start())
        placing[0].waits_for(jobs.database.backend_pid)

    jobs.database.before("release_sessions", begins)

    assert jobs.release(drain=Drain(batch=1)) == {
        "release_sessions/released": 1,
        "release_sessions/skipped/hold": 1,
    }
    assert placing[0].result().in_force
    assert len(rows.transcripts()) == 1


@pytest.mark.parametrize("handle", [None, "row of a"], ids=["scope", "row"])
def test_another_system_is_not_asked_for_what_is_held(
    rows: Rows, jobs: Jobs, placer: Placer, handle: str | None
) -> None:
    """Judged right before it is asked."""
    rows.queue("a")
    jobs.database.before("share_holds", lambda: placer.place("s", handle))

    with (
        transcript_system() as system,
        closing(HttpRelease(system.template, None, timedelta(seconds=30), 4)) as client,
    ):
        stamp = Stamp(NOW, uuid4())
        drain = release_elsewhere(jobs.database, client, None, stamp, Drain(), uuid4, lambda: 0.0)
        said = [done.by_kind for done in drain]
        asked = list(system.asked)

    assert asked == []
    assert said[0] == {("skipped", "hold"): 1}
    left = rows.query("select state, attempts, claim_id from maintenance.session_releases")
    assert left == [{"state": "pending", "attempts": 0, "claim_id": None}]


def test_many_placers_among_many_sweepers(rows: Rows, crew: Crew) -> None:
    """Whatever was there when its hold was placed is there in the end, and nothing fails."""
    count = 3000
    for scope in ("s", "t"):
        rows.fill(scope, count // 2, "completed", {"settled_at": f"{LONG_AGO} + n"})
    sweepers = [crew.jobs(Limits(), f"sweeper {n}") for n in range(3)]
    placers = [Placer(crew.jobs(Limits(), f"placer {n}").database, rows) for n in range(3)]
    over = Event()

    def sweep(jobs: Jobs) -> Callable[[], int]:
        def act() -> int:
            gone = 0
            jobs.size = BatchSize(rows=20, scopes=2)
            while not over.is_set():
                gone += jobs.reap(max_age_ms=AGE, scopes=["s", "t"]).get("reap/max_age", 0)
            return gone

        return act

    def hold(placer: Placer, first: int) -> Callable[[], list[tuple[str, str]]]:
        def act() -> list[tuple[str, str]]:
            there = []
            store = PostgresAgentStore(placer.database)
            for number in range(count // 2 - first, 0, -120):
                for scope in ("s", "t"):
                    handle = f"a{number:06}"
                    placer.place(scope, handle)
                    if store.get(handle, scope) is not None:
                        there.append((scope, handle))
            return there

        return act

    sweeping = [Background(sweep(j), rows, j.database.application) for j in sweepers]
    placing = [
        Background(hold(p, 40 * n), rows, p.database.application) for n, p in enumerate(placers)
    ]
    held = [each for placer in placing for each in placer.result()]
    over.set()
    gone = sum(each.result() for each in sweeping)

    left = {(scope, handle) for scope in ("s", "t") for handle in rows.handles(scope)}
    assert held
    assert {*held} <= left
    assert gone == count - len(left) == rows.journal()["reap/max_age"]
    assert rows.scalar("select count(*) from maintenance.holds") > len(held) - 1


def test_hold_that_is_over_holds_no_more(rows: Rows, jobs: Jobs, placer: Placer) -> None:
    """By the database's clock, whatever time the caller says that it is."""
    rows.finished("a", "b")
    placer.place("s", "a", until=timedelta(milliseconds=400))
    placer.place("s", "b", until=timedelta(days=1))
    assert len(placer.in_force()) == 2

    await_condition(lambda: len(placer.in_force()) == 1, "the hold is over")

    assert jobs.reap(max_age_ms=AGE) == {"reap/max_age": 1, HELD: 1}
    assert rows.handles() == ["b"]


def test_a_row_goes_when_the_last_of_its_holds_is_released(
    rows: Rows, jobs: Jobs, placer: Placer
) -> None:
    rows.finished("a")
    holds = [placer.place("s", "a"), placer.place("s"), placer.place("s", "a")]
    for hold in holds:
        assert jobs.reap(max_age_ms=AGE) == {HELD: 1}
        released = release(placer.database, hold.id, "bob@desk", "the case is closed")
        assert (released.released_by, released.in_force) == ("bob@desk", False)

    assert jobs.reap(max_age_ms=AGE) == {"reap/max_age": 1}

    with pytest.raises(NoSuchHold, match=rf"^hold {holds[0].id} was released by bob@desk at"):
        release(placer.database, holds[0].id, "eve@desk")
    with pytest.raises(NoSuchHold, match=r"^there is no hold 999999999; `holds list` shows"):
        release(placer.database, 999_999_999, "eve@desk")
    acts = rows.query("select actor, action, scope, handle from maintenance.actions order by id")
    assert [(a["actor"], a["action"]) for a in acts] == [
        *[("ada@desk", "place_hold")] * 3,
        *[("bob@desk", "release_hold")] * 3,
    ]
    assert {(a["scope"], a["handle"]) for a in acts} == {("s", "a"), ("s", None)}


def test_of_two_who_release_a_hold_one_does(ledger_url: str, rows: Rows, placer: Placer) -> None:
    hold = placer.place()
    with psycopg.connect(ledger_url) as other:
        other.execute("update maintenance.holds set released_by = 'first', released_at = 1")
        releasing = Background(lambda: release(placer.database, hold.id, "second"), rows, "placer")
        releasing.waits_for(other.info.backend_pid)

    with pytest.raises(NoSuchHold, match="was released by first at"):
        releasing.result()


def test_names_that_sql_could_stumble_on(rows: Rows, jobs: Jobs, placer: Placer) -> None:
    r"""Each names itself and no other, a backslash and what looks like an escape included."""
    names = ["a", "A", "a\\", "a\\\\000b", "ümlaut", "it's %s", "\\x41"]
    for name in names:
        rows.finished(*names, scope=name)
    for place_, name in enumerate(names[1:]):
        placer.place(name, names[place_])
    placer.place(names[0])

    jobs.reap(max_age_ms=AGE, scopes=names)

    assert rows.handles(names[0]) == sorted(names, key=str.encode)
    for place_, name in enumerate(names[1:]):
        assert rows.handles(name) == [names[place_]]


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ({"scope": ""}, "scope cannot be empty"),
        ({"handle": ""}, "handle cannot be empty; leave it out to hold the whole scope"),
        ({"scope": "s" * 2601}, "scope is 2601 bytes; an index holds 2600"),
        ({"handle": "h" * 2600}, "handle and scope are 2601 bytes together"),
        ({"handle": "a\0b"}, "handle contains a NUL character"),
        ({"until": timedelta(0)}, "until is not in the future by the database's clock"),
    ],
)
def test_hold_that_names_nothing_is_refused(
    placer: Placer, named: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidHold, match=f"^{problem}"):
        placer.place(**named)

    assert placer.in_force() == []
