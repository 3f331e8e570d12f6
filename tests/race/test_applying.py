"""A plan is applied while rows, checkpoints, holds and pauses change: it goes beyond none."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from store.applying import Application, Work
from store.batches import BatchSize, Done, Stamp
from store.database import Database
from store.flip_stale_running import preview_flip
from store.guards import UNGUARDED, Guards
from store.holds import Hold, place
from store.named_flip import NamedFlip
from store.named_reap import NamedReap
from store.named_reconcile import NamedReconciliation
from store.named_releases import NamedOutbox, look_at_named
from store.pauses import place as pause
from store.plans import PlannedRow, list_flip, list_reap, list_reconcile, list_releases
from store.reap import RELEASE_DELAY, preview_reap
from store.release_sessions import Drain, release_sessions
from store.retention import RetentionPolicy
from tests.race.background import Background
from tests.race.conftest import Crew
from tests.race.jobs import PATIENT, Jobs, SteppedDatabase
from tests.race.rows import NOW, Rows, kind_of
from tests.race.writer import Writer
from tests.store.misbehaving import misbehaving

AGE = 60_000
LEASE = 60_000
RETENTION = [(scope, RetentionPolicy(max_age_ms=AGE)) for scope in ("s", "t")]
AGES = [("s", AGE)]
LEASES = [("s", LEASE)]
HELD = "reap/skipped/hold"
LOST = "reap/lost_race"
# With every guard, and as with `--override all`.
GUARDED = [Guards(plausible_times=False), UNGUARDED]

Make = Callable[[Database, Stamp, Guards], Work]


def reaping(database: Database, stamp: Stamp, guards: Guards) -> Work:
    return NamedReap.of(RETENTION, stamp, guards, RELEASE_DELAY, timedelta(days=1))


def flipping(database: Database, stamp: Stamp, guards: Guards) -> Work:
    return NamedFlip.of(database, AGES, stamp, guards, {})


def reconciling(database: Database, stamp: Stamp, guards: Guards) -> Work:
    return NamedReconciliation.of(LEASES, stamp, guards)


class Applier:
    """Applies plans on a database that a test can stop; what it counts is what is journaled."""

    def __init__(self, rows: Rows, database: SteppedDatabase) -> None:
        self._rows = rows
        self.database = database
        self.size = BatchSize()

    def plan(self, make: Make) -> list[PlannedRow]:
        """What a run without guards would do now."""
        with self.database.transaction(read_only=True, snapshot=True) as tx:
            if make is reaping:
                found = preview_reap(tx, RETENTION, NOW)
                return [*list_reap(tx, RETENTION, NOW, UNGUARDED, found)]
            if make is flipping:
                silent = preview_flip(tx, AGES, NOW)
                return [*list_flip(tx, AGES, NOW, UNGUARDED, {}, silent)]
            return [*list_reconcile(tx, LEASES, NOW, UNGUARDED)]

    def apply(
        self, make: Make, plan: Sequence[PlannedRow], guards: Guards = UNGUARDED
    ) -> dict[str, int]:
        stamp = Stamp(NOW, uuid4())
        work = make(self.database, stamp, guards)
        application = Application(self.database, work, plan, stamp, self.size, {})
        counted = self._counted(work.job, application.batches())
        assert counted == self._rows.journal(stamp.run_id)
        assert sum(counted.values()) == len(plan)
        assert application.rest == []
        return counted

    def release(self, plan: Sequence[PlannedRow]) -> dict[str, int]:
        stamp = Stamp(NOW, uuid4())
        outbox = NamedOutbox(plan, stamp)
        for _ in release_sessions(self.database, None, stamp, Drain(), uuid4, lambda: 0.0, outbox):
            pass
        outbox.count_paused(self.database)
        assert outbox.rest == []
        return self._rows.journal(stamp.run_id)

    def start(self, act: Callable[[], dict[str, int]]) -> Background[dict[str, int]]:
        return Background(act, self._rows, self.database.application)

    def _counted(self, job: str, batches: Iterable[Done]) -> dict[str, int]:
        counted: Counter[str] = Counter()
        for done in batches:
            for (arm, cause), n in done.by_kind.items():
                counted[kind_of(job, arm, cause)] += n
        return dict(+counted)


def breaking(limit: int) -> Guards:
    """Breakers and nothing else."""
    return replace(UNGUARDED, breakers=True, breaker_rows=limit)


@pytest.fixture
def applier(rows: Rows, jobs: Jobs) -> Applier:
    return Applier(rows, jobs.database)


@pytest.fixture
def other(rows: Rows, crew: Crew) -> Applier:
    return Applier(rows, crew.jobs(PATIENT, "other").database)


def hold(database: Database, handle: str | None = None, scope: str = "s") -> Hold:
    return place(database, scope, handle, "case 4711", "ada@desk")


def test_what_changed_since_the_plan_is_a_lost_race(
    rows: Rows, writer: Writer, applier: Applier
) -> None:
    """Revived, written, gone, and another life of the same handle at the same revision."""
    rows.finished("gone", "reused", "revived", "same", "touched")
    rows.agent("without", settled_at=None)
    plan = applier.plan(reaping)
    assert [row.handle for row in plan] == [
        "gone", "reused", "revived", "same", "touched", "without",
    ]  # fmt: skip
    for handle in ("gone", "reused"):
        writer.begin_deletion(handle)
    writer.begin_revival("revived")
    writer.begin_touch("touched")
    writer.commit()
    rows.agent("reused", spawned_at=1_001, settled_at=10_000)
    rows.finished("later")

    assert applier.apply(reaping, plan) == {"reap/max_age": 2, LOST: 4}

    assert rows.handles() == ["later", "reused", "revived", "touched"]
    assert rows.queued() == [("same", "transcript of same"), ("without", None)]
    assert applier.apply(reaping, plan) == {LOST: 6}


def test_a_revival_in_flight_saves_its_row(rows: Rows, writer: Writer, applier: Applier) -> None:
    """Neither is it waited for, nor does it hold up the others."""
    rows.finished("a", "b", "c")
    plan = applier.plan(reaping)
    writer.begin_revival("b")

    assert applier.apply(reaping, plan) == {"reap/max_age": 2, LOST: 1}

    writer.commit()
    assert rows.brief("b") == ("running", 2)


def test_a_revival_between_judgement_and_delete_saves_its_row(
    rows: Rows, writer: Writer, applier: Applier
) -> None:
    rows.finished("a", "b")
    plan = applier.plan(reaping)

    def revive() -> None:
        writer.begin_revival("a")
        writer.commit()

    applier.database.after("reap_named", revive)

    assert applier.apply(reaping, plan) == {"reap/max_age": 1, LOST: 1}
    assert rows.handles() == ["a"]


def test_a_row_that_was_lost_leaves_room_for_the_next(
    rows: Rows, writer: Writer, applier: Applier
) -> None:
    """What somebody else changed first opens no breaker: what may go goes, and no more."""
    rows.finished("a", "b")
    rows.finished("c", "d", "e", scope="t")
    plan = applier.plan(reaping)

    def revive() -> None:
        writer.begin_revival("a")
        writer.commit()

    applier.database.after("reap_named", revive)

    counted = applier.apply(reaping, plan, breaking(1))

    assert counted == {"reap/max_age": 2, LOST: 1, "reap/skipped/breaker": 2}
    assert (rows.handles("s"), rows.handles("t")) == (["a"], ["d", "e"])
    assert rows.query("select scope from maintenance.breakers") == [{"scope": "t"}]


def test_each_row_counts_once_where_its_scope_is_given_up(
    rows: Rows, applier: Applier, ledger: tuple[str, Database]
) -> None:
    """Those that were not tried any more are passed over as well, and the others go."""
    applier.size = BatchSize(rows=8)
    rows.finished(*(f"poisoned {n:02}" for n in range(25)))
    rows.finished("other", scope="t")
    plan = applier.plan(reaping)

    with misbehaving(*ledger):
        counted = applier.apply(reaping, plan)

    assert counted == {"reap/skipped/failing": 25, "reap/max_age": 1}


def test_a_batch_has_no_more_scopes_than_is_set(rows: Rows, applier: Applier) -> None:
    applier.size = BatchSize(scopes=1)
    rows.finished("a")
    rows.finished("b", scope="t")

    assert applier.apply(reaping, applier.plan(reaping)) == {"reap/max_age": 2}

    batches = rows.query("select count(distinct batch) as n from maintenance.journal")
    assert batches == [{"n": 2}]


@pytest.mark.parametrize("guards", GUARDED, ids=["guarded", "all lifted"])
def test_nothing_that_was_held_since_the_plan_goes(
    rows: Rows, applier: Applier, guards: Guards
) -> None:
    rows.finished("a", "b")
    rows.finished("c", scope="t")
    plan = applier.plan(reaping)
    hold(applier.database, "b")
    hold(applier.database, scope="t")

    assert applier.apply(reaping, plan, guards) == {"reap/max_age": 1, HELD: 2}
    assert (rows.handles("s"), rows.handles("t")) == (["b"], ["c"])


@pytest.mark.parametrize("guards", GUARDED, ids=["guarded", "all lifted"])
@pytest.mark.parametrize("handle", [None, "b"], ids=["scope", "row"])
@pytest.mark.parametrize("moment", ["reap_named", "reap_planned"])
def test_a_hold_is_not_placed_before_the_batch_in_hand_is_over(
    rows: Rows,
    applier: Applier,
    other: Applier,
    guards: Guards,
    handle: str | None,
    moment: str,
) -> None:
    """Once it is placed, the next batch leaves alone what it covers."""
    applier.size = BatchSize(rows=1)
    rows.finished("a", "b")
    plan = applier.plan(reaping)
    placing: list[Background[Hold]] = []

    def begins() -> None:
        database = other.database
        placing.append(Background(lambda: hold(database, handle), rows, database.application))
        placing[0].waits_for(applier.database.backend_pid)
        assert rows.scalar("select count(*) from maintenance.holds") == 0

    applier.database.before(moment, begins)

    counted = applier.apply(reaping, plan, guards)

    assert placing[0].result().in_force
    assert counted == {"reap/max_age": 1, HELD: 1}
    assert rows.handles() == ["b"]


def test_two_who_apply_one_plan_do_each_row_once(
    rows: Rows, applier: Applier, other: Applier
) -> None:
    """The second begins in the middle of the first, and waits for its turn at the scope."""
    applier.size = other.size = BatchSize(rows=2)
    rows.finished(*"abcdef")
    plan = applier.plan(reaping)
    second: list[Background[dict[str, int]]] = []
    applier.database.after(
        "reap_planned", lambda: second.append(other.start(lambda: other.apply(reaping, plan)))
    )

    counted = Counter(applier.apply(reaping, plan)) + Counter(second[0].result())

    assert counted == {"reap/max_age": 6, LOST: 6}
    assert [handle for handle, _ in rows.queued()] == [*"abcdef"]


def test_a_pause_half_way_ends_it_after_the_batch_in_hand(rows: Rows, applier: Applier) -> None:
    applier.size = BatchSize(rows=1)
    rows.finished("a", "b", "c")
    rows.finished("d", scope="t")
    plan = applier.plan(reaping)
    applier.database.after(
        "reap_planned", lambda: pause(applier.database, ["reap"], ["s"], "stop", "ada")
    )

    assert applier.apply(reaping, plan) == {"reap/max_age": 2, "reap/skipped/paused": 2}
    assert (rows.handles("s"), rows.handles("t")) == (["b", "c"], [])


def test_a_heartbeat_after_the_judgement_wins(rows: Rows, writer: Writer, applier: Applier) -> None:
    rows.running("a", "b")
    plan = applier.plan(flipping)
    assert [(row.handle, row.reason) for row in plan] == [
        ("a", "stale_running"),
        ("b", "stale_running"),
    ]

    def beat() -> None:
        writer.begin_heartbeat("a")
        writer.commit()

    applier.database.after("flip_named", beat)

    lost = "flip_stale_running/lost_race"
    assert applier.apply(flipping, plan) == {"flip_stale_running/flipped": 1, lost: 1}
    assert (rows.brief("a"), rows.brief("b")) == (("running", 2), ("failed", 2))
    assert applier.apply(flipping, plan) == {lost: 2}


def test_an_approval_in_flight_keeps_its_row(rows: Rows, writer: Writer, applier: Applier) -> None:
    rows.parked("a", "t")
    rows.checkpoint("t", status="expired")
    plan = applier.plan(reconciling)
    writer.begin_reopening("t")

    skipped = "reconcile_parked/skipped/checkpoint_locked"
    assert applier.apply(reconciling, plan) == {skipped: 1}
    assert rows.brief("a") == ("parked", 1)


@pytest.mark.parametrize("statement", [None, "reconcile_named", "lock_checkpoints"])
def test_a_claim_that_was_to_be_given_back_is_not_failed_instead(
    rows: Rows, writer: Writer, applier: Applier, statement: str | None
) -> None:
    """Its checkpoint expires after the plan, or once it was judged: that is another thing to do."""
    rows.claimed("a", "t")
    rows.checkpoint("t")
    [planned] = applier.plan(reconciling)
    assert planned.reason == "stale_claim"

    def expire() -> None:
        writer.begin_renewal("t", NOW - 1)
        writer.commit()

    if statement is None:
        expire()
    elif statement == "reconcile_named":
        applier.database.after(statement, expire)
    else:
        applier.database.before(statement, expire)

    counted = applier.apply(reconciling, [planned])

    assert counted == {"reconcile_parked/lost_race": 1}
    assert rows.brief("a") == ("running", 1)
    assert applier.plan(reconciling)[0].reason == "checkpoint_expired"


def test_transcripts_that_are_held_named_or_gone_since_the_plan_stay(
    rows: Rows, applier: Applier
) -> None:
    rows.queue("a", "b", "c", "d")
    for session in "abcd":
        rows.session(session)
    with applier.database.transaction(read_only=True) as tx:
        plan = [*list_releases(tx, None, NOW, "postgres")]
    assert [(row.session_id, row.reason) for row in plan] == [(s, "released") for s in "abcd"]
    rows.agent("again", session_id="b")
    hold(applier.database)

    assert applier.release(plan) == {
        "release_sessions/skipped/hold": 3,
        "release_sessions/named": 1,
    }
    rows.query("update maintenance.holds set released_at = 1 returning 1")
    rows.query("update maintenance.session_releases set not_before = 0 returning 1")
    rows.query("delete from maintenance.session_releases where session_id = 'c' returning 1")

    assert applier.release(plan) == {
        "release_sessions/released": 2,
        "release_sessions/lost_race": 2,
    }
    assert rows.transcripts() == ["b", "c"]


def test_a_spent_plan_of_releases_holds_nobody_up(
    rows: Rows, applier: Applier, other: Applier
) -> None:
    """Each few entries are a batch of their own: a hold is placed after the first of them."""
    rows.queue(*"abcdef")
    for session in "abcdef":
        rows.session(session)
    with applier.database.transaction(read_only=True) as tx:
        plan = [*list_releases(tx, None, NOW, "postgres")]
    rows.query("delete from maintenance.session_releases returning 1")
    stamp = Stamp(NOW, uuid4())
    drained = release_sessions(
        applier.database,
        None,
        stamp,
        Drain(batch=2),
        uuid4,
        lambda: 0.0,
        NamedOutbox(plan, stamp),
    )

    next(drained)
    assert hold(other.database).in_force
    pause(other.database, ["release_sessions"], None, "stop", "ada")

    assert len([*drained]) <= 1
    assert rows.journal(stamp.run_id) == {"release_sessions/lost_race": 2}


def test_a_transcript_of_several_entries_goes_and_counts_once(rows: Rows, applier: Applier) -> None:
    """As the dry run says."""
    rows.queue("a", "a", "b")
    for session in "ab":
        rows.session(session)
    with applier.database.transaction(read_only=True) as tx:
        plan = [*list_releases(tx, None, NOW, "postgres")]
        seen = look_at_named(tx, plan, NOW, "postgres")

    assert seen == {("s", "released", None): 2}
    assert applier.release(plan) == {"release_sessions/released": 2}
