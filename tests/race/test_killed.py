"""A job whose backend is killed in the middle: what it had begun is undone, row by row and count.

Ledger, outbox and journal are one transaction: after a kill they say the same, and the next run
does the work as if nothing had been.
"""

from collections.abc import Callable

import pytest

from store.batches import BatchSize
from store.errors import StoreUnavailable
from tests.race.jobs import Jobs
from tests.race.rows import NOW, Rows
from tests.race.writer import Writer


def kill(rows: Rows, jobs: Jobs) -> None:
    """End the backend of the job's open transaction, and wait until it is gone."""
    assert rows.scalar("select pg_terminate_backend(%s, 10000)", jobs.database.backend_pid)


def state(rows: Rows) -> tuple[object, ...]:
    """Everything a job may change."""
    agents = [rows.row(handle) for handle in rows.handles()]
    approvals = rows.query(f"select * from {rows.schema}.checkpoints order by token")
    return agents, approvals, rows.queued(), rows.journal()


@pytest.mark.parametrize(
    ("statement", "run", "counted"),
    [
        ("reap", lambda jobs: jobs.reap(max_age_ms=60_000), {"reap/max_age": 3}),
        ("reap", lambda jobs: jobs.reap(keep=1), {"reap/keep": 2}),
        ("reap_unsettled", lambda jobs: jobs.reap(keep=0), {"reap/keep": 1}),
        ("flip_stale_running", lambda jobs: jobs.flip(), {"flip_stale_running/flipped": 2}),
        ("flip_judged", lambda jobs: jobs.flip(), {"flip_stale_running/flipped": 1}),
        (
            "expire_checkpoints",
            lambda jobs: jobs.reconcile(),
            {"reconcile_parked/failed/checkpoint_expired": 2},
        ),
        (
            "reconcile_parked",
            lambda jobs: jobs.reconcile(),
            {"reconcile_parked/failed/checkpoint_expired": 2},
        ),
    ],
)
def test_job_killed_between_its_write_and_its_commit_leaves_everything_as_it_was(
    rows: Rows,
    jobs: Jobs,
    statement: str,
    run: Callable[[Jobs], dict[str, int]],
    counted: dict[str, int],
) -> None:
    """One batch is written and not committed when its backend dies; the next run does it."""
    rows.checkpoint("token", expires_at=NOW)
    if statement == "reap":
        rows.finished("a", "b", "c")
    elif statement == "reap_unsettled":
        rows.agent("d", status="killed", session_id="transcript of d")
    elif statement == "flip_stale_running":
        rows.running("e", "f")
    elif statement == "flip_judged":
        rows.claimed("g", "token")
    else:
        rows.parked("h", "token")
        rows.claimed("i", "token")
    before = state(rows)
    jobs.database.after(statement, lambda: kill(rows, jobs))

    with pytest.raises(StoreUnavailable):
        run(jobs)

    assert state(rows) == before
    assert run(jobs) == counted
    assert rows.journal() == counted


def test_batches_before_the_kill_stay_done_and_counted(rows: Rows, jobs: Jobs) -> None:
    """What is gone, what is queued and what is counted are the same two rows, then all five."""
    rows.finished("a", "b", "c", "d", "e")
    jobs.size = BatchSize(rows=2, scopes=1)

    def second_batch_dies() -> None:
        jobs.database.after("reap", lambda: kill(rows, jobs))

    jobs.database.after("reap", second_batch_dies)

    with pytest.raises(StoreUnavailable):
        jobs.reap(max_age_ms=60_000)

    assert rows.handles() == ["c", "d", "e"]
    assert [handle for handle, _ in rows.queued()] == ["a", "b"]
    assert rows.journal() == {"reap/max_age": 2}

    assert jobs.reap(max_age_ms=60_000) == {"reap/max_age": 3}
    assert [handle for handle, _ in rows.queued()] == ["a", "b", "c", "d", "e"]
    assert rows.journal() == {"reap/max_age": 5}


def test_job_killed_while_it_waits_for_a_writer_frees_what_it_held(
    rows: Rows, writer: Writer, other_writer: Writer, jobs: Jobs
) -> None:
    """Deleted 'a' comes back at once, and its writer can revive it."""
    rows.finished("a", "b")
    writer.begin_revival("b")
    reaping = jobs.start(jobs.reap, max_age_ms=60_000)
    reaping.waits_for(writer.pid)

    kill(rows, jobs)

    with pytest.raises(StoreUnavailable):
        reaping.result()
    other_writer.begin_revival("a")
    other_writer.commit()
    writer.commit()
    assert [rows.brief(handle) for handle in ("a", "b")] == [("running", 2)] * 2
    assert rows.journal() == {}
    assert rows.queued() == []
    assert jobs.reap(max_age_ms=60_000) == {}


def test_job_killed_after_it_gave_up_a_lock_has_done_nothing_twice(
    rows: Rows, writer: Writer, hasty_jobs: Jobs
) -> None:
    """First attempt timed out and was undone, second was killed and undone, third one counts."""
    rows.finished("a", "b", "c")
    writer.begin_touch("b")
    hasty_jobs.database.after("reap_past_locks", lambda: kill(rows, hasty_jobs))

    with pytest.raises(StoreUnavailable):
        hasty_jobs.reap(max_age_ms=60_000)
    assert (rows.handles(), rows.queued(), rows.journal()) == (["a", "b", "c"], [], {})

    assert hasty_jobs.reap(max_age_ms=60_000) == {"reap/max_age": 2, "reap/lost_race": 1}
    assert [handle for handle, _ in rows.queued()] == ["a", "c"]
    assert rows.journal() == {"reap/max_age": 2, "reap/lost_race": 1}
