"""Two sweepers at once on thousands of rows: nothing is done twice, nothing is counted twice."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from store.batches import BatchSize
from store.database import Limits
from tests.race.background import Background
from tests.race.conftest import Crew
from tests.race.jobs import HASTY, Jobs
from tests.race.rows import LONG_AGO, NOW, Rows

COUNT = 3000
TERMINAL = {"settled_at": f"{LONG_AGO} + n", "session_id": "'transcript ' || n"}


def both(
    rows: Rows, pair: tuple[Jobs, Jobs], run: Callable[[Jobs], dict[str, int]]
) -> list[dict[str, int]]:
    """What each counted, of two that begin at the same moment."""
    start = threading.Barrier(2)

    def begin(jobs: Jobs) -> Callable[[], dict[str, int]]:
        def act() -> dict[str, int]:
            start.wait()
            return run(jobs)

        return act

    running = [Background(begin(each), rows, each.database.application) for each in pair]
    return [each.result() for each in running]


def total(counts: list[dict[str, int]], kind: str) -> int:
    return sum(count.get(kind, 0) for count in counts)


@pytest.fixture(params=["by default", "hasty"])
def pair(crew: Crew, request: pytest.FixtureRequest) -> tuple[Jobs, Jobs]:
    """Two sweepers that wait for each other a while, or that pass over what the other holds."""
    limits = {"by default": Limits(), "hasty": HASTY}[request.param]
    first, second = crew.jobs(limits, "first sweeper"), crew.jobs(limits, "second sweeper")
    first.size = second.size = BatchSize(rows=200, scopes=2)
    return first, second


@pytest.mark.parametrize(
    ("policy", "kind", "left"),
    [
        ({"max_age_ms": 60_000}, "reap/max_age", 0),
        ({"keep": 100}, "reap/keep", 200),
    ],
)
def test_two_reaps_delete_every_row_once(
    rows: Rows,
    pair: tuple[Jobs, Jobs],
    policy: dict[str, Any],
    kind: str,
    left: int,
) -> None:
    """They take the scopes in opposite order, too: their locks cross, and nobody is harmed."""
    for scope in ("s", "t"):
        rows.fill(scope, COUNT // 2, "completed", TERMINAL)

    counts = both(
        rows,
        pair,
        lambda jobs: jobs.reap(**policy, scopes=["s", "t"] if jobs is pair[0] else ["t", "s"]),
    )

    # WHY not equal at once: each may have passed over what the other held and then gave up.
    done = total(counts, kind)
    done += pair[0].reap(**policy, scopes=["s", "t"]).get(kind, 0)
    assert done == COUNT - left
    assert rows.count("true") == left
    assert rows.journal()[kind] == COUNT - left
    assert rows.scalar("select count(*) from maintenance.session_releases") == COUNT - left
    assert rows.scalar(
        "select count(distinct (scope, session_id)) from maintenance.session_releases"
    ) == (COUNT - left)


def test_two_flips_fail_every_row_once(rows: Rows, pair: tuple[Jobs, Jobs]) -> None:
    """Rows without a claim, and rows whose claim a dead checkpoint does not protect."""
    rows.checkpoint("token", status="expired", updated_at=5)
    rows.fill("s", COUNT // 2, "running", {})
    claim = {"parked_checkpoint_token": "'token'", "park_claim_id": "'claim'"}
    rows.fill("s", COUNT // 2, "running", {**claim, "handle": "'c' || n"})

    counts = both(rows, pair, lambda jobs: jobs.flip())

    kind = "flip_stale_running/flipped"
    assert total(counts, kind) + pair[0].flip().get(kind, 0) == COUNT
    assert rows.count("status = 'failed' and rev = 2") == COUNT
    assert rows.journal()[kind] == COUNT


def test_two_reconciliations_follow_every_checkpoint_once(
    rows: Rows, pair: tuple[Jobs, Jobs]
) -> None:
    """What one of them passes over because the other is at it is done by the other."""
    rows.checkpoint("overdue", expires_at=NOW)
    rows.checkpoint("pending")
    third = COUNT // 3
    waiting = {"parked_at": "n", "parked_checkpoint_token": "'overdue'"}
    rows.fill("s", third, "parked", waiting)
    rows.fill("s", third, "parked", {"parked_at": "n", "handle": "'m' || n"})
    claim = {"parked_checkpoint_token": "'pending'", "park_claim_id": "'claim'"}
    rows.fill("s", third, "running", {**claim, "handle": "'r' || n"})

    counts = both(rows, pair, lambda jobs: jobs.reconcile())
    counts.append(pair[0].reconcile())

    kinds = {
        "reconcile_parked/failed/checkpoint_expired": third,
        "reconcile_parked/failed/checkpoint_missing": third,
        "reconcile_parked/rolled_back/stale_claim": third,
    }
    assert {kind: total(counts, kind) for kind in kinds} == kinds
    assert {kind: n for kind, n in rows.journal().items() if kind in kinds} == kinds
    assert rows.count("status = 'failed' and rev = 2") == 2 * third
    assert rows.count("status = 'parked' and rev = 2 and writer_epoch = 1") == third


def test_flip_and_reconciliation_at_once_write_every_row_once(
    rows: Rows, pair: tuple[Jobs, Jobs]
) -> None:
    """A silent claim under a dead checkpoint is the business of both; one of them does it."""
    rows.checkpoint("token", status="expired", updated_at=5)
    claim = {"parked_checkpoint_token": "'token'", "park_claim_id": "'claim'"}
    rows.fill("s", COUNT, "running", claim)

    counts = both(
        rows,
        pair,
        lambda jobs: jobs.flip() if jobs is pair[0] else jobs.reconcile(),
    )
    counts += [pair[0].flip(), pair[1].reconcile()]

    failed = "reconcile_parked/failed/checkpoint_expired"
    assert total(counts, "flip_stale_running/flipped") + total(counts, failed) == COUNT
    assert rows.count("status = 'failed' and rev = 2 and content ->> 'error' is not null") == COUNT
