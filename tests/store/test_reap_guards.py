"""What the scheduled reap leaves alone beyond the rules of retention, and what it does not.

Every run is held against the dry run before it, which must say exactly what the run then does.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from store.agents import record_params
from store.batches import BatchSize, Stamp
from store.breakers import clear, tripped
from store.database import Database
from store.flip_stale_running import flip_stale_running
from store.guards import EARLIEST_PLAUSIBLE_MS, UNGUARDED, Guards
from store.reap import JOB, preview_reap, reap
from store.records import STALE_RUNNING_REAP_ATTRIBUTION, AgentRecord
from store.retention import RetentionPolicy
from tests.store.stores import NOW, OTHER_SCOPE, SCOPE, SMALL, agent, ended

STALE = 600_000
HEARTBEAT = 60_000
MINUTE = 60_000
GUARDED = Guards()
AGED = RetentionPolicy(max_age_ms=0, stale_running_max_age_ms=STALE)
BEYOND = RetentionPolicy(keep=0, stale_running_max_age_ms=STALE)
BOTH = RetentionPolicy(max_age_ms=0, keep=0, stale_running_max_age_ms=STALE)
ATTRIBUTED = {"error": STALE_RUNNING_REAP_ATTRIBUTION, "summary": STALE_RUNNING_REAP_ATTRIBUTION}


def flipped(handle: str, ms_ago: int, **members: Any) -> AgentRecord:
    """A row that was flipped so long ago."""
    return ended(handle, ms_ago, **{"status": "failed", "content": ATTRIBUTED} | members)


class Guarded:
    """A ledger, and guarded runs on it."""

    def __init__(self, url: str, database: Database) -> None:
        self.database = database
        self.connection = psycopg.connect(url, autocommit=True)
        self._schema = database.statements.ledger_schema

    def fill(self, *rows: AgentRecord) -> None:
        with self.database.transaction() as tx:
            for row in rows:
                assert tx.one("agent_put", record_params(row)) is not None

    def handles(self, scope: str = SCOPE) -> list[str]:
        rows = self.connection.execute(
            f"select handle from {self._schema}.background_agents where scope = %s"
            " and status not in ('running', 'parked') order by handle collate \"C\"".encode(),
            (scope,),
        )
        return [handle for (handle,) in rows]

    def do(self, statement: str) -> None:
        self.connection.execute(statement.encode())

    def select(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query.encode()).fetchall()

    def reap(
        self,
        policy: RetentionPolicy,
        guards: Guards = GUARDED,
        scopes: Iterable[str] = (SCOPE,),
        *,
        run_id: UUID | None = None,
        size: BatchSize = SMALL,
    ) -> dict[str, int]:
        """What a run counted: as the journal has it, and as the dry run said."""
        run_id = run_id or uuid4()
        policies = [(scope, policy) for scope in scopes]
        with self.database.transaction(read_only=True, snapshot=True) as tx:
            found = preview_reap(tx, policies, NOW, guards)
        planned: Counter[str] = Counter()
        for (_, arm, cause), backlog in found.items():
            planned[_kind(arm, cause)] += backlog.rows
        before = self._journal(run_id)
        counted: Counter[str] = Counter()
        for done in reap(self.database, policies, Stamp(NOW, run_id), size, guards=guards):
            for (arm, cause), count in done.by_kind.items():
                counted[_kind(arm, cause)] += count
        counted = +counted
        assert self._journal(run_id) - before == counted
        if "skipped/breaker" in counted:
            # A run comes to no more of them once a breaker opens.
            planned["skipped/fresh_flip"] = counted["skipped/fresh_flip"]
        if not before:
            assert +planned == counted
        return dict(counted)

    def _journal(self, run_id: UUID) -> Counter[str]:
        rows = self.connection.execute(
            "select arm, cause, sum(count)::int from maintenance.journal where run_id = %s"
            " group by arm, cause",
            (run_id,),
        )
        return Counter({_kind(arm, cause): count for arm, cause, count in rows})


def _kind(arm: str, cause: str | None) -> str:
    return arm if cause is None else f"{arm}/{cause}"


@pytest.fixture
def ledger_of(ledger: tuple[str, Database]) -> Iterator[Guarded]:
    guarded = Guarded(*ledger)
    yield guarded
    guarded.connection.close()


# Fresh flips


@pytest.mark.parametrize(
    ("policy", "arm"), [(AGED, "max_age"), (BEYOND, "keep")], ids=["age", "keep"]
)
def test_a_flipped_row_stays_until_it_has_been_terminal_for_the_stale_age(
    ledger_of: Guarded, policy: RetentionPolicy, arm: str
) -> None:
    """By the millisecond, with or without a settling time, whichever member has the text."""
    half = {"error": "its own words", "summary": STALE_RUNNING_REAP_ATTRIBUTION}
    ledger_of.fill(
        flipped("a", STALE + 1),
        flipped("b", STALE),
        flipped("c", STALE - 1, content={"error": STALE_RUNNING_REAP_ATTRIBUTION}),
        flipped("d", 1, content=half),
        flipped("e", STALE + 1, settled_at=None),
        flipped("f", STALE, settled_at=None),
    )

    assert ledger_of.reap(policy) == {arm: 2, "skipped/fresh_flip": 4}

    assert ledger_of.handles() == ["b", "c", "d", "f"]


@pytest.mark.parametrize("ranged", [True, False], ids=["by the row", "judged"])
@pytest.mark.parametrize("settled", [True, False], ids=["settled", "unsettled"])
@pytest.mark.parametrize("ago", [STALE, STALE + 1])
def test_a_flip_that_the_content_does_not_show_is_known_all_the_same(
    ledger_of: Guarded, ago: int, settled: bool, ranged: bool
) -> None:
    """A row with an error and a summary of its own: it stays until it was written since."""
    own = {"error": "its own words", "summary": "and more of them"}
    running = {"status": "running", "settled_at": None, "updated_at": 1, "content": own}
    ledger_of.fill(ended("a", 1, **running), ended("b", 1, **running))
    guards = UNGUARDED if ranged else replace(UNGUARDED, outage=True)
    batches = flip_stale_running(
        ledger_of.database, [(SCOPE, STALE)], Stamp(NOW - ago), SMALL, guards=guards
    )
    assert sum(done.rows for done in batches) == 2
    schema = ledger_of.database.statements.ledger_schema
    if not settled:
        ledger_of.do(f"update {schema}.background_agents set settled_at = null")
    # Its writer says the same once more: from now on it is the writer's own word.
    ledger_of.do(f"update {schema}.background_agents set rev = rev + 1 where handle = 'b'")

    fresh = ago <= STALE
    counted = {"max_age": 1, "skipped/fresh_flip": 1} if fresh else {"max_age": 2}
    assert ledger_of.reap(AGED) == counted
    assert ledger_of.handles() == (["a"] if fresh else [])


def test_a_live_writers_flip_that_the_content_does_not_show_stays(ledger_of: Guarded) -> None:
    """However long ago it was."""
    own = {"error": "its own words", "summary": "and more of them"}
    ledger_of.fill(
        ended("a", 1, status="running", settled_at=None, updated_at=1, content=own),
        ended("b", 1, scope="t", status="running", settled_at=None, updated_at=NOW),
    )
    for _ in flip_stale_running(
        ledger_of.database, [(SCOPE, STALE)], Stamp(NOW - 100 * STALE), SMALL
    ):
        pass

    assert ledger_of.reap(BOTH) == {"skipped/fresh_flip": 1}
    assert ledger_of.handles() == ["a"]


def test_what_only_resembles_a_flip_is_deleted(ledger_of: Guarded) -> None:
    """Another status, another text, a text within a text, and none."""
    near = {"error": f"{STALE_RUNNING_REAP_ATTRIBUTION} ", "summary": None}
    nested = {"error": {"error": STALE_RUNNING_REAP_ATTRIBUTION}}
    ledger_of.fill(
        ended("a", 1, status="killed", content=ATTRIBUTED),
        ended("b", 1, status="completed", content=ATTRIBUTED),
        ended("c", 1, status="failed", content=near),
        ended("d", 1, status="failed", content=nested),
        ended("e", 1, status="failed", content={}),
        ended("f", 1, status="failed", content={"error": None, "summary": ""}),
        ended("g", 1),
    )

    assert ledger_of.reap(AGED) == {"max_age": 7}


@pytest.mark.parametrize(
    ("silent_ms", "lives"), [(2 * HEARTBEAT - 1, True), (2 * HEARTBEAT, False)]
)
def test_a_flipped_row_stays_while_its_writer_lives(
    ledger_of: Guarded, silent_ms: int, lives: bool
) -> None:
    """A writer lives that renewed a running row of any scope within two heartbeats."""
    ledger_of.fill(
        flipped("a", 9 * STALE),
        flipped("b", 9 * STALE, settled_at=None),
        flipped("c", 9 * STALE, writer_id="another"),
        ended("d", 9 * STALE),
        agent("alive", scope=OTHER_SCOPE, updated_at=NOW - silent_ms),
        agent("parked", scope=OTHER_SCOPE, writer_id="another", status="parked"),
    )

    counted = ledger_of.reap(BOTH)

    assert counted == ({"max_age": 2, "skipped/fresh_flip": 2} if lives else {"max_age": 4})
    assert ledger_of.handles() == (["a", "b"] if lives else [])


@pytest.mark.parametrize(
    ("moved_ms_ago", "lives"), [(2 * HEARTBEAT - 1, True), (2 * HEARTBEAT, False)]
)
def test_a_writer_whose_clock_is_behind_lives_by_its_sightings(
    ledger_of: Guarded, moved_ms_ago: int, lives: bool
) -> None:
    """Whatever it stamps, its row was seen to move; what did not move shows nothing."""
    behind = NOW - 20 * MINUTE
    ledger_of.fill(
        flipped("a", 9 * STALE),
        flipped("b", 9 * STALE, writer_id="another"),
        agent("alive", scope=OTHER_SCOPE, updated_at=behind),
    )
    sighting = (
        "insert into maintenance.sightings"
        " (scope, handle, verdict, rev, updated_at, writer_id, first_seen, last_seen, moved_at)"
        " values (%s, %s, 'stale_running', 5, %s, %s, %s, %s, %s)"
    )
    moved = NOW - moved_ms_ago
    for handle, writer, at in (("alive", "writer-1", moved), ("still", "another", None)):
        ledger_of.connection.execute(
            sighting, (OTHER_SCOPE, handle, behind, writer, moved, moved, at)
        )

    assert ledger_of.reap(AGED) == (
        {"max_age": 1, "skipped/fresh_flip": 1} if lives else {"max_age": 2}
    )


def test_fresh_flips_do_not_starve_what_is_behind_them(ledger_of: Guarded) -> None:
    """They are passed over by their key, and counted once though both arms would take them."""
    ledger_of.fill(
        *(flipped(f"a{n:02}", 50, settled_at=NOW - 50 if n % 2 else None) for n in range(20)),
        *(ended(f"b{n}", 10) for n in range(5)),
        *(ended(f"c{n}", 10, settled_at=None) for n in range(5)),
    )

    assert ledger_of.reap(BOTH) == {"max_age": 10, "skipped/fresh_flip": 20}


def test_a_scope_without_a_stale_age_keeps_flips_for_a_quarter_of_an_hour(
    ledger_of: Guarded,
) -> None:
    ledger_of.fill(flipped("a", 15 * MINUTE + 1), flipped("b", 15 * MINUTE))

    assert ledger_of.reap(RetentionPolicy(keep=0)) == {"keep": 1, "skipped/fresh_flip": 1}

    assert ledger_of.handles() == ["b"]


def test_whoever_lifts_the_guard_deletes_fresh_flips(ledger_of: Guarded) -> None:
    ledger_of.fill(flipped("a", 1), flipped("b", 1, settled_at=None), agent("alive"))

    assert ledger_of.reap(AGED, GUARDED.without(["fresh-flips"])) == {"max_age": 2}


# Plausible times

IMPLAUSIBLE = {
    "negative": -5,
    "epoch": 0,
    "seconds": NOW // 1000,
    "before-agents": EARLIEST_PLAUSIBLE_MS - 1,
    "future": NOW + 1,
    "far-future": NOW * 1000,
}


@pytest.mark.parametrize(
    ("policy", "arm"), [(AGED, "max_age"), (BEYOND, "keep"), (BOTH, "max_age")]
)
def test_a_row_of_an_implausible_time_is_counted_and_never_deleted(
    ledger_of: Guarded, policy: RetentionPolicy, arm: str
) -> None:
    """By either arm, with or without a settling time; the first plausible millisecond counts."""
    for name, at in IMPLAUSIBLE.items():
        ledger_of.fill(
            ended(name, NOW - at, updated_at=NOW - 7),
            ended(f"{name}-unsettled", 0, settled_at=None, updated_at=at),
        )
    first = NOW - EARLIEST_PLAUSIBLE_MS
    ledger_of.fill(ended("first", first), ended("ordinary", 7), ended("late", 7, updated_at=0))
    before = ledger_of.handles()

    assert ledger_of.reap(policy) == {arm: 3, "skipped/implausible_time": 2 * len(IMPLAUSIBLE)}

    assert ledger_of.handles() == [h for h in before if h not in {"first", "ordinary", "late"}]


def test_an_implausible_time_takes_no_place_among_those_that_are_kept(ledger_of: Guarded) -> None:
    """Three rows from the future would otherwise push out every row there is."""
    ledger_of.fill(
        *(ended(f"future{n}", -99, settled_at=None if n else NOW + 99) for n in range(3)),
        *(ended(f"a{n}", 100 - n) for n in range(4)),
        ended("b", 1, settled_at=None),
        ended("past", NOW),
    )
    policy = RetentionPolicy(keep=3)

    assert ledger_of.reap(policy) == {"keep": 2, "skipped/implausible_time": 4}

    assert ledger_of.handles() == ["a2", "a3", "b", "future0", "future1", "future2", "past"]
    assert ledger_of.reap(policy) == {"skipped/implausible_time": 4}


def test_whoever_lifts_the_guard_deletes_implausible_times(ledger_of: Guarded) -> None:
    """What lies in the future is beyond no age, but it takes its place and can be beyond `keep`."""
    for name, at in IMPLAUSIBLE.items():
        ledger_of.fill(ended(name, NOW - at))

    assert ledger_of.reap(BOTH, GUARDED.without(["plausible-times"])) == {"max_age": 4, "keep": 2}


def test_a_scope_without_an_arm_is_not_even_counted(ledger_of: Guarded) -> None:
    ledger_of.fill(ended("a", NOW))

    assert ledger_of.reap(RetentionPolicy(stale_running_max_age_ms=STALE)) == {}


# Breakers

LIMITED = replace(GUARDED, breaker_rows=4)
_FOUR_AND_SIX = "a run may change no more than 4 rows here, and 6 more were due"


def ten_due(scope: str = SCOPE) -> list[AgentRecord]:
    """Of both kinds of rows, so that every kind of batch meets the limit somewhere."""
    return [ended(f"a{n}", 10 + n, scope=scope, settled_at=None if n % 3 else NOW - 10 - n)
            for n in range(10)]  # fmt: skip


@pytest.mark.parametrize("size", [SMALL, BatchSize()])
@pytest.mark.parametrize(
    ("policy", "counted"),
    [
        (AGED, {"max_age": 4}),
        (BEYOND, {"keep": 4}),
        (RetentionPolicy(max_age_ms=16, keep=0), {"max_age": 3, "keep": 1}),
    ],
)
def test_a_breaker_lets_a_run_delete_so_many_rows_of_a_scope_and_then_opens(
    ledger_of: Guarded, policy: RetentionPolicy, counted: dict[str, int], size: BatchSize
) -> None:
    """Both arms together; the rest is counted as skipped, and each scope has its own limit."""
    others = [ended(f"b{n}", 10, scope=OTHER_SCOPE) for n in range(4)]
    ledger_of.fill(*ten_due(), *others)

    said = ledger_of.reap(policy, LIMITED, [SCOPE, OTHER_SCOPE], size=size)

    arm = "keep" if policy.keep == 0 else "max_age"
    assert said == Counter(counted) + Counter({arm: 4, "skipped/breaker": 6})
    assert len(ledger_of.handles()) == 6
    assert ledger_of.handles(OTHER_SCOPE) == []
    assert ledger_of.select(
        "select job, scope, reason, opened_at, detail from maintenance.breakers"
    ) == [(JOB, SCOPE, "rows", NOW, _FOUR_AND_SIX)]


def test_an_open_breaker_stays_until_a_person_lets_a_run_finish(ledger_of: Guarded) -> None:
    """Runs that follow count what is due and leave it, even where no limit is set any more."""
    ledger_of.fill(*ten_due(), ended("c", 10, scope=OTHER_SCOPE))
    ledger_of.reap(AGED, LIMITED)
    ledger_of.fill(flipped("fresh", 1))

    assert ledger_of.reap(AGED, LIMITED) == {"skipped/breaker": 6}
    assert ledger_of.reap(AGED, GUARDED, [SCOPE, OTHER_SCOPE]) == {
        "max_age": 1,
        "skipped/breaker": 6,
    }

    lifted = LIMITED.without(["breakers"])
    assert ledger_of.reap(AGED, lifted) == {"max_age": 6, "skipped/fresh_flip": 1}
    with ledger_of.database.transaction(read_only=True) as tx:
        assert [*tripped(tx, JOB, [SCOPE, OTHER_SCOPE])] == [SCOPE]
    run_id = uuid4()
    assert clear(ledger_of.database, JOB, [SCOPE, OTHER_SCOPE], Stamp(NOW, run_id)) == [SCOPE]

    assert ledger_of.select("select from maintenance.breakers") == []
    assert ledger_of.select(
        f"select scope, arm, count from maintenance.journal where run_id = '{run_id}'"
    ) == [(SCOPE, "breaker_cleared", 1)]
    ledger_of.fill(*ten_due())
    assert ledger_of.reap(AGED, LIMITED) == {"max_age": 4, "skipped/breaker": 6}


@pytest.mark.parametrize(
    ("limits", "deleted"),
    [
        ({"breaker_rows": 10}, 10),
        ({"breaker_rows": 9}, 9),
        ({"breaker_rows": 0}, 0),
        ({"breaker_share": 1.0}, 10),
        ({"breaker_share": 0.72}, 10),
        ({"breaker_share": 0.71}, 9),
        ({"breaker_share": 0.05}, 1),
        ({"breaker_share": 0.5, "breaker_rows": 3}, 3),
        ({"breaker_share": 0.2, "breaker_rows": 9}, 2),
    ],
)
def test_a_breaker_opens_only_where_more_is_due_than_may_go(
    ledger_of: Guarded, limits: dict[str, Any], deleted: int
) -> None:
    """The share is of all the scope's rows, fourteen here, and is rounded down."""
    ledger_of.fill(*ten_due(), *(agent(f"r{n}") for n in range(4)))

    said = ledger_of.reap(AGED, replace(GUARDED, **limits))

    over = {"max_age": deleted, "skipped/breaker": 10 - deleted}
    assert said == {kind: n for kind, n in over.items() if n}
    assert len(ledger_of.select("select from maintenance.breakers")) == (deleted < 10)


def test_the_parts_of_one_run_share_its_limit(ledger_of: Guarded) -> None:
    """A part that the budget ended goes on with the limit that is left, of the same share."""
    run_id = uuid4()
    guards = replace(GUARDED, breaker_share=0.4)
    ledger_of.fill(*ten_due())
    first = reap(ledger_of.database, [(SCOPE, AGED)], Stamp(NOW, run_id), SMALL, guards=guards)
    deleted = next(first).rows
    assert 0 < deleted < 4

    said = ledger_of.reap(AGED, guards, run_id=run_id)

    assert said == {"max_age": 4 - deleted, "skipped/breaker": 6}


def test_without_limits_nothing_is_read_and_nothing_opens(ledger_of: Guarded) -> None:
    ledger_of.fill(*ten_due())

    assert ledger_of.reap(AGED) == {"max_age": 10}
    assert ledger_of.select("select from maintenance.breakers") == []


def test_the_stores_own_reap_knows_no_guard(ledger_of: Guarded) -> None:
    """It does what the contract says: fresh flips, implausible times and open breakers included."""
    ledger_of.fill(*ten_due(), flipped("fresh", 1), ended("epoch", NOW))
    ledger_of.reap(AGED, LIMITED)

    assert ledger_of.reap(AGED, UNGUARDED) == {"max_age": 8}
    assert len(ledger_of.select("select from maintenance.breakers")) == 1
