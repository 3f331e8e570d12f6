"""Retention: what each arm of a reap deletes and what it never does, over every store."""

from dataclasses import replace

import pytest

from store.contract import Reaped, Reconciled
from store.records import BIGINT_MIN, AgentRecord, Status
from store.retention import RetentionPolicy
from tests.store.stores import NOW, OTHER_SCOPE, SCOPE, Stores, agent, checkpoint, ended

AGE = 60_000
ENDED: tuple[Status, ...] = ("completed", "failed", "killed")

# An age in the policy, the age of a row, and whether it goes: strictly, and fractions count.
LIMITS = [
    (AGE, AGE - 1, False),
    (AGE, AGE, False),
    (AGE, AGE + 1, True),
    (float(AGE), AGE, False),
    (AGE + 0.5, AGE, False),
    (AGE + 0.5, AGE + 1, True),
    (AGE - 0.5, AGE - 1, False),
    (AGE - 0.5, AGE, True),
    (0, 0, False),
    (0, 1, True),
    (0.0, 1, True),
    (-0.0, 0, False),
    (0.25, 0, False),
    (0.25, 1, True),
    (AGE, -AGE, False),
]


def reap_now(stores: Stores, policy: RetentionPolicy) -> Reaped:
    """Reap the scope now, asking its checkpoints."""
    return stores.agents.reap(SCOPE, NOW, policy, stores.checkpoints)


@pytest.mark.parametrize("status", ENDED)
@pytest.mark.parametrize(("age", "settled_ms_ago", "goes"), LIMITS)
def test_the_age_arm_at_its_limit(
    stores: Stores, status: Status, age: float, settled_ms_ago: int, goes: bool
) -> None:
    """Strictly older than the age: one millisecond decides, with or without a settling time."""
    row = ended("dated", settled_ms_ago, status=status, session_id="session-1")
    undated = replace(row, handle="undated", settled_at=None, session_id="session-2")
    stores.fill(row, undated)

    assert reap_now(stores, RetentionPolicy(max_age_ms=age)) == Reaped(by_age=2 * goes)

    assert stores.rows() == ({} if goes else {"dated": row, "undated": undated})
    at = NOW - settled_ms_ago
    queued = [("session-1", "dated", at), ("session-2", "undated", at)]
    assert stores.released() == (queued if goes else [])


def test_age_counts_from_the_end_of_a_row_and_from_nothing_else(stores: Stores) -> None:
    """Not from its start, its parking, or a later touch; only without an end from its update."""
    stores.fill(
        ended("long-run", AGE, spawned_at=0, parked_at=0),
        ended("touched-since", AGE + 1, updated_at=NOW),
        ended("settled-late", AGE, updated_at=0),
        ended("undated", 0, settled_at=None, updated_at=NOW - AGE - 1, spawned_at=NOW),
    )

    assert reap_now(stores, RetentionPolicy(max_age_ms=AGE)) == Reaped(by_age=2)
    assert [*stores.rows()] == ["long-run", "settled-late"]


@pytest.mark.parametrize("status", ["running", "parked"])
@pytest.mark.parametrize(
    "policy",
    [
        RetentionPolicy(max_age_ms=0),
        RetentionPolicy(keep=0),
        RetentionPolicy(max_age_ms=0, keep=0),
    ],
    ids=["age", "keep", "both"],
)
def test_what_has_not_ended_is_never_deleted(
    stores: Stores, status: Status, policy: RetentionPolicy
) -> None:
    """Whatever its times say, an ending time that some writer left behind included."""
    for handle, settled_at in (("a-1", None), ("a-2", 0), ("a-3", NOW - 10)):
        stores.fill(agent(handle, status=status, updated_at=0, spawned_at=0, settled_at=settled_at))
    before = stores.tables()

    assert reap_now(stores, policy) == Reaped()
    assert stores.tables() == before


def test_a_parked_row_is_not_flipped_and_so_never_ages(stores: Stores) -> None:
    stores.fill(agent(status="parked", updated_at=0, park_claim_id="claim-1"))
    before = stores.tables()

    assert reap_now(stores, RetentionPolicy(0, 0, 0)) == Reaped()
    assert stores.tables() == before


def test_another_scope_is_not_touched(stores: Stores) -> None:
    for scope in (SCOPE, OTHER_SCOPE):
        stores.fill(
            agent("a-1", scope=scope, updated_at=0),
            ended("a-2", AGE, scope=scope, session_id="session-1"),
        )
    others = stores.rows(OTHER_SCOPE)

    assert reap_now(stores, RetentionPolicy(0, 0, 0)) == Reaped(flipped=1, by_age=1, by_keep=1)

    assert stores.rows(OTHER_SCOPE) == others
    assert stores.released(OTHER_SCOPE) == []


# Newest first, as the keep arm ranks them: by end (or last update), then by handle from the back.
RANKED: list[AgentRecord] = [
    ended("a-7", -5, status="failed"),
    ended("b-2", 10, status="killed"),
    ended("b-1", 10, settled_at=None),
    ended("a-9", 10),
    ended("a-10", 10, status="failed", settled_at=None),
    ended("a-1", 10, updated_at=NOW + 99),
    ended("z", 11, settled_at=None, status="killed"),
    ended("a", 12),
]


@pytest.mark.parametrize("keep", [0, 1, 2, 3, 4, 5, 5.0, 6, 7, 8, 9, 10**6, 2**63, 1e300])
def test_the_keep_arm_leaves_the_newest(stores: Stores, keep: float) -> None:
    """Ties go by handle, the later one is newer; rows without an end rank by their last update."""
    stores.fill(*(RANKED[place] for place in (3, 7, 0, 5, 2, 6, 1, 4)))
    live = [agent("live"), agent("waiting", status="parked", updated_at=0)]
    stores.fill(*live)
    left = RANKED[: int(keep)]

    assert reap_now(stores, RetentionPolicy(keep=keep)) == Reaped(by_keep=len(RANKED) - len(left))

    assert stores.rows() == {row.handle: row for row in sorted([*left, *live], key=_handle)}


def _handle(row: AgentRecord) -> str:
    return row.handle


def test_what_the_keep_arm_deletes_is_released(stores: Stores) -> None:
    """Each with the time it ended at, or was last written."""
    stores.fill(*(replace(row, session_id=f"s-{row.handle}") for row in RANKED))

    reap_now(stores, RetentionPolicy(keep=5))

    assert stores.released() == [
        ("s-a", "a", NOW - 12),
        ("s-a-1", "a-1", NOW - 10),
        ("s-z", "z", NOW - 11),
    ]


@pytest.mark.parametrize("keep", [0, 1, 2, 9, 19, 20, 21])
def test_many_rows_that_ended_together(stores: Stores, keep: int) -> None:
    """Far more ties on one millisecond than a batch holds: the handle alone decides."""
    rows = [ended(f"a-{n:02}", 10, settled_at=None if n % 3 else NOW - 10) for n in range(20)]
    stores.fill(*rows)

    assert reap_now(stores, RetentionPolicy(keep=keep)).by_keep == max(0, 20 - keep)

    assert [*stores.rows()] == [f"a-{n:02}" for n in range(max(0, 20 - keep), 20)]


def test_the_age_arm_goes_through_ties_longer_than_a_batch(stores: Stores) -> None:
    """Every one goes, none is counted twice, and what is within the age stays."""
    for n in range(20):
        undated = {"settled_at": None} if n % 4 == 0 else {}
        stores.fill(
            ended(f"old-{n:02}", 11, session_id=f"s-{n:02}", **undated),
            ended(f"new-{n:02}", 10, session_id=f"t-{n:02}", **undated),
        )

    assert reap_now(stores, RetentionPolicy(max_age_ms=10)) == Reaped(by_age=20)

    assert [*stores.rows()] == [f"new-{n:02}" for n in range(20)]
    assert stores.released() == [(f"s-{n:02}", f"old-{n:02}", NOW - 11) for n in range(20)]
    assert reap_now(stores, RetentionPolicy(max_age_ms=10)) == Reaped()


@pytest.mark.parametrize("at", [0, 1, -1, -(2**63), -(2**63) + 1])
def test_the_earliest_times_are_times(stores: Stores, at: int) -> None:
    """A row that ended at the least time there is goes like any other."""
    stores.fill(
        agent("a-1", status="failed", settled_at=at),
        agent("a-2", status="failed", updated_at=at),
    )

    assert reap_now(stores, RetentionPolicy(max_age_ms=AGE)) == Reaped(by_age=2)


@pytest.mark.parametrize(
    ("age", "goes"),
    [
        (NOW - BIGINT_MIN - 1, True),
        (NOW - BIGINT_MIN, False),
        (NOW - BIGINT_MIN + 1, False),
        (1e308, False),
        (10**400, False),
    ],
    ids=["one earlier", "the earliest", "one beyond", "beyond all", "far beyond all"],
)
def test_no_time_is_before_the_earliest(stores: Stores, age: float, goes: bool) -> None:
    """A cutoff that 64 bits cannot hold takes nothing; it does not wrap around and take all."""
    stores.fill(
        agent("a-1", status="failed", settled_at=BIGINT_MIN),
        agent("a-2", status="failed", updated_at=BIGINT_MIN),
        agent("a-3", updated_at=BIGINT_MIN),
        agent("a-4", updated_at=BIGINT_MIN, park_claim_id="c", parked_checkpoint_token="t"),
        agent("a-5", updated_at=BIGINT_MIN, park_claim_id="c", parked_checkpoint_token="gone"),
        checkpoint("t"),
    )

    leased = stores.agents.reconcile_parked(stores.checkpoints, SCOPE, NOW, age)
    reaped = reap_now(stores, RetentionPolicy(max_age_ms=age, stale_running_max_age_ms=age))

    assert leased == Reconciled(failed=goes, rolled_back=goes)
    assert reaped == Reaped(flipped=goes, by_age=2 * goes)


def test_age_goes_before_keep(stores: Stores) -> None:
    """What the age takes, it takes; keep counts among what is left, so nothing is taken twice."""
    stores.fill(*(ended(f"a-{n}", n * 10) for n in range(8)))

    reaped = reap_now(stores, RetentionPolicy(max_age_ms=45, keep=3))

    assert reaped == Reaped(by_age=3, by_keep=2)
    assert [*stores.rows()] == ["a-0", "a-1", "a-2"]


def test_keep_does_not_protect_from_age_nor_age_from_keep(stores: Stores) -> None:
    stores.fill(*(ended(f"a-{n}", n * 10) for n in range(4)))

    assert reap_now(stores, RetentionPolicy(max_age_ms=15, keep=100)) == Reaped(by_age=2)
    assert reap_now(stores, RetentionPolicy(max_age_ms=10**9, keep=1)) == Reaped(by_keep=1)
    assert [*stores.rows()] == ["a-0"]


def test_the_flip_goes_first(stores: Stores) -> None:
    """A row that is flipped ends now: too young for the age, and the newest of those kept."""
    stores.fill(
        agent("silent", updated_at=NOW - AGE - 1, session_id="s-1"),
        ended("a-1", 1, session_id="s-2"),
        ended("a-2", AGE, session_id="s-3"),
    )

    reaped = reap_now(stores, RetentionPolicy(10, 1, AGE))

    assert reaped == Reaped(flipped=1, by_age=1, by_keep=1)
    assert [(row.handle, row.status) for row in stores.rows().values()] == [("silent", "failed")]
    assert stores.released() == [("s-2", "a-1", NOW - 1), ("s-3", "a-2", NOW - AGE)]


def test_a_flipped_row_that_keep_has_no_place_for_goes(stores: Stores) -> None:
    stores.fill(agent(updated_at=0, session_id="s-1"))

    assert reap_now(stores, RetentionPolicy(keep=0, stale_running_max_age_ms=1)) == Reaped(
        flipped=1, by_keep=1
    )
    assert stores.rows() == {}
    assert stores.released() == [("s-1", "a-1", NOW)]
