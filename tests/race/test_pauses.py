"""A job is paused while a batch of it is under way: that batch ends, and no other one begins."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from store import pauses
from store.batches import BatchSize, Stamp
from store.database import Database, Limits
from store.flip_stale_running import flip_stale_running
from store.guards import Guards
from store.harvest import drain_harvest, prune_harvest
from store.housekeeping import prune
from store.pauses import Paused
from store.reap import reap
from store.reconcile_parked import reconcile_parked
from store.release_elsewhere import Answer, Key, release_elsewhere
from store.release_sessions import Drain, keep_sessions, release_sessions
from store.retention import RetentionPolicy
from tests.race.background import Background
from tests.race.conftest import Crew
from tests.race.jobs import PATIENT, SteppedDatabase
from tests.race.rows import NOW, Rows

ONE = BatchSize(rows=1, scopes=1)
SCOPES = ("s", "t")
EACH = 3
LATER = timedelta(seconds=1)


@dataclass(frozen=True)
class Case:
    """A job with three things to do in each of two scopes, one in a batch.

    `statement` has the effect of a batch; `undone` counts what is left to be done in a scope.
    """

    job: str
    statement: str
    place: Callable[[Rows, str], object]
    batches: Callable[[Database], Iterable[Any]]
    undone: Callable[[Rows, str], int]
    scoped: bool = True

    def fill(self, rows: Rows) -> None:
        for scope in SCOPES:
            self.place(rows, scope)

    def left(self, rows: Rows) -> tuple[int, int]:
        return self.undone(rows, "s"), self.undone(rows, "t")

    def run(self, database: Database) -> Paused:
        """Run to the end; gives where it says that it was paused."""
        paused = Paused()
        for done in self.batches(database):
            paused |= getattr(done[0] if isinstance(done, tuple) else done, "paused", Paused())
        return paused


class Deleting:
    """Another system, which deletes all that it is asked to."""

    at_a_time = 1

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._meanwhile = meanwhile

    def release(self, keys: Sequence[Key]) -> list[Answer]:
        self._meanwhile()
        return [Answer("released")] * len(keys)

    def close(self) -> None:
        pass


def queue(rows: Rows, scope: str) -> None:
    names = [f"{scope} {number}" for number in range(EACH)]
    for name in names:
        rows.session(name, scope)
    rows.queue(*names, scope=scope)


def queued(rows: Rows, scope: str) -> int:
    return len(rows.queued(scope))


def handles(scope: str) -> list[str]:
    return [f"{scope} {number}" for number in range(EACH)]


def park(rows: Rows, scope: str) -> None:
    for handle in handles(scope):
        rows.parked(handle, None, scope=scope)


def reject(rows: Rows, scope: str, counted_at: int | None = None) -> None:
    rows.query(
        "insert into maintenance.harvest_rejections (scope, code, counted_at)"
        f" select %s, 'abc', %s from generate_series(1, {EACH}) returning id",
        scope,
        counted_at,
    )


def rejections(rows: Rows, scope: str, which: str) -> int:
    found = rows.scalar(
        f"select count(*) from maintenance.harvest_rejections where scope = %s and {which}", scope
    )
    return int(found)


def ask(rows: Rows, scope: str) -> None:
    """Requests, which are pruned by the time they are from."""
    rows.query(
        "insert into maintenance.requests (id, job, requested_by, requested_at, state)"
        f" select gen_random_uuid(), %s, 'ada', 1, 'taken' from generate_series(1, {EACH})"
        " returning id",
        scope,
    )


def asked(rows: Rows, scope: str) -> int:
    return int(rows.scalar("select count(*) from maintenance.requests where job = %s", scope))


def stamp() -> Stamp:
    return Stamp(NOW, uuid4())


def flips(database: Database, guards: Guards | None = None) -> Iterator[Any]:
    ages = [(scope, 60_000) for scope in SCOPES]
    return flip_stale_running(database, ages, stamp(), ONE, guards=guards or UNSEEN)


UNSEEN = Guards().without(["all"])
BY_CHECKPOINT = Guards(sightings=False)
CASES = {
    "reap": Case(
        "reap",
        "reap",
        lambda rows, scope: rows.finished(*handles(scope), scope=scope),
        lambda database: reap(
            database, [(s, RetentionPolicy(max_age_ms=1)) for s in SCOPES], stamp(), ONE
        ),
        lambda rows, scope: len(rows.handles(scope)),
    ),
    "flip": Case(
        "flip_stale_running",
        "flip_stale_running",
        lambda rows, scope: rows.running(*handles(scope), scope=scope),
        flips,
        lambda rows, scope: rows.count(f"scope = '{scope}' and status = 'running'"),
    ),
    "guarded flip": Case(
        "flip_stale_running",
        "flip_judged",
        lambda rows, scope: rows.running(*handles(scope), scope=scope),
        lambda database: flips(database, BY_CHECKPOINT),
        lambda rows, scope: rows.count(f"scope = '{scope}' and status = 'running'"),
    ),
    "reconcile": Case(
        "reconcile_parked",
        "reconcile_parked",
        park,
        lambda database: reconcile_parked(database, [(s, 60_000) for s in SCOPES], stamp(), ONE),
        lambda rows, scope: rows.count(f"scope = '{scope}' and status = 'parked'"),
    ),
    "release": Case(
        "release_sessions",
        "release_sessions",
        queue,
        lambda database: release_sessions(
            database, None, stamp(), Drain(batch=1), uuid4, lambda: 0.0
        ),
        queued,
    ),
    "release elsewhere": Case(
        "release_sessions",
        "judge_releases",
        queue,
        lambda database: release_elsewhere(
            database, Deleting(), None, stamp(), Drain(), uuid4, lambda: 0.0
        ),
        queued,
    ),
    "release nowhere": Case(
        "release_sessions",
        "keep_releases",
        queue,
        lambda database: keep_sessions(database, None, stamp(), 1),
        queued,
    ),
    "count rejections": Case(
        "drain_harvest",
        "count_harvest",
        reject,
        lambda database: drain_harvest(database, None, stamp(), 1),
        lambda rows, scope: rejections(rows, scope, "counted_at is null"),
    ),
    "prune rejections": Case(
        "drain_harvest",
        "prune_harvest",
        lambda rows, scope: reject(rows, scope, counted_at=1),
        lambda database: prune_harvest(database, None, stamp(), LATER, 1),
        lambda rows, scope: rejections(rows, scope, "true"),
    ),
    "housekeeping": Case(
        "housekeeping",
        "prune_requests",
        ask,
        lambda database: prune(database, NOW, LATER, 1),
        asked,
        scoped=False,
    ),
}
SCOPED = {name: case for name, case in CASES.items() if case.scoped}


@pytest.fixture(params=[*CASES.values()], ids=[*CASES])
def case(request: pytest.FixtureRequest, rows: Rows) -> Case:
    case: Case = request.param
    case.fill(rows)
    return case


@pytest.fixture(params=[*SCOPED.values()], ids=[*SCOPED])
def scoped(request: pytest.FixtureRequest, rows: Rows) -> Case:
    case: Case = request.param
    case.fill(rows)
    return case


@pytest.fixture
def job(crew: Crew) -> SteppedDatabase:
    """The database under the job."""
    return crew.jobs(PATIENT).database


@pytest.fixture
def person(crew: Crew) -> SteppedDatabase:
    """The database under whoever pauses."""
    return crew.jobs(PATIENT, "person").database


def pause(database: Database, case: Case, *scopes: str) -> None:
    assert pauses.place(database, [case.job], scopes or None, "why not", "ada")


def test_batch_in_hand_ends_and_the_next_does_not_begin(
    case: Case, rows: Rows, job: SteppedDatabase, person: SteppedDatabase
) -> None:
    job.before(case.statement, lambda: pause(person, case))

    paused = case.run(job)

    assert sum(case.left(rows)) == 2 * EACH - 1
    assert paused == Paused(everywhere=case.scoped)
    assert case.run(job) == paused
    assert sum(case.left(rows)) == 2 * EACH - 1


def test_other_scopes_go_on(
    scoped: Case, rows: Rows, job: SteppedDatabase, person: SteppedDatabase
) -> None:
    job.before(scoped.statement, lambda: pause(person, scoped, "s"))

    paused = scoped.run(job)

    assert scoped.left(rows) == (EACH - 1, 0)
    assert paused == Paused(scopes=frozenset("s"))


def test_scope_that_was_paused_before_is_left_out(
    scoped: Case, rows: Rows, job: SteppedDatabase, person: SteppedDatabase
) -> None:
    pause(person, scoped, "s", "nobody's")

    scoped.run(job)

    assert scoped.left(rows) == (EACH, 0)


# A batch elsewhere ends outside of any transaction: see the last test.
@pytest.mark.parametrize("name", [name for name in CASES if name != "release elsewhere"])
def test_word_is_given_once_the_batch_in_hand_is_over_and_nothing_follows(
    name: str, rows: Rows, job: SteppedDatabase, person: SteppedDatabase
) -> None:
    """What the person sees left when told that it is paused is what is left for good."""
    case = CASES[name]
    case.fill(rows)
    waiting: list[Background[tuple[int, int]]] = []

    def paused_by_then() -> tuple[int, int]:
        pause(person, case)
        assert pauses.await_batches(person, case.job)
        return case.left(rows)

    def begin() -> None:
        waiting.append(Background(paused_by_then, rows, person.application))
        waiting[0].waits_for(job.backend_pid)

    job.after(case.statement, begin)

    case.run(job)

    assert sum(waiting[0].result()) == 2 * EACH - 1
    assert sum(case.left(rows)) == 2 * EACH - 1


def test_job_that_finds_somebody_waiting_stands_aside_and_then_goes_on(
    case: Case, rows: Rows, job: SteppedDatabase, person: SteppedDatabase
) -> None:
    with person.transaction() as tx:
        tx.rows("await_batches", {"job": case.job})
        running = Background(lambda: case.run(job), rows, job.application)
        running.pauses()
        assert case.left(rows) == (EACH, EACH)

    assert not running.result()
    assert case.left(rows) == (0, 0)


def test_whoever_waits_has_the_turn_before_batches_that_begin_later(
    rows: Rows, crew: Crew, person: SteppedDatabase
) -> None:
    """Or workers that take turns would keep a person waiting for ever."""
    first, second = (crew.jobs(PATIENT, name).database for name in ("first", "second"))
    with first.transaction() as tx:
        assert pauses.begin_batch(tx, "reap", ["s"]) == Paused()
        waiting = Background(lambda: pauses.await_batches(person, "reap"), rows, "person")
        waiting.waits_for(first.backend_pid)

        with second.transaction() as later:
            assert pauses.begin_batch(later, "reap", ["t"]) is None
        with second.transaction() as another:
            assert pauses.begin_batch(another, "flip_stale_running", ["t"]) == Paused()

    assert waiting.result()
    with second.transaction() as tx:
        assert pauses.begin_batch(tx, "reap", ["t"]) == Paused()


def test_batch_that_does_not_end_is_not_waited_for_for_ever(crew: Crew) -> None:
    stuck = crew.jobs(PATIENT, "stuck").database
    hasty = crew.jobs(Limits(statement_timeout=timedelta(milliseconds=50)), "person").database
    with stuck.transaction() as tx:
        assert pauses.begin_batch(tx, "reap", ["s"]) == Paused()
        assert pauses.place(hasty, ["reap"], None, "", "ada")
        assert not pauses.await_batches(hasty, "reap")

        with hasty.transaction() as later:
            assert pauses.begin_batch(later, "reap", ["s"]) == Paused(everywhere=True)


@pytest.mark.parametrize("scopes", [(), ("s", "t")], ids=["everywhere", "in the scopes"])
def test_what_was_claimed_and_not_released_is_put_back(
    scopes: tuple[str, ...], rows: Rows, job: SteppedDatabase, person: SteppedDatabase
) -> None:
    case = CASES["release"]
    case.fill(rows)
    job.after("claim_releases", lambda: pause(person, case, *scopes))

    case.run(job)

    assert len(rows.transcripts("s")) == len(rows.transcripts("t")) == EACH
    found = rows.query(
        "select distinct claim_id, attempts, state from maintenance.session_releases"
    )
    assert found == [{"claim_id": None, "attempts": 0, "state": "pending"}]


def test_what_another_system_was_asked_for_is_waited_for(
    rows: Rows, job: SteppedDatabase, person: SteppedDatabase
) -> None:
    """No transaction is open meanwhile: only the claim says that something may yet be deleted."""
    queue(rows, "s")
    now = rows.scalar("select (extract(epoch from clock_timestamp()) * 1000)::bigint")
    waiting: list[Background[int]] = []

    def paused_by_then() -> int:
        assert pauses.await_claims(person, None) is None
        return queued(rows, "s")

    def meanwhile() -> None:
        assert pauses.place(person, ["release_sessions"], ["s"], "", "ada")
        assert pauses.await_batches(person, "release_sessions")
        waiting.append(Background(paused_by_then, rows, person.application))
        waiting[-1].pauses()

    batches = release_elsewhere(
        job,
        Deleting(meanwhile),
        None,
        Stamp(now, uuid4(), live=True),
        Drain(),
        uuid4,
        lambda: 0.0,
    )
    assert [each.by_kind for each in batches if each.by_kind] == [{("released", None): 1}]

    assert waiting[0].result() == queued(rows, "s") == EACH - 1
