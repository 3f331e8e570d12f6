"""Who wins when a row that is due for deletion is revived, replaced or written meanwhile."""

from typing import Any

import pytest
from psycopg.types.json import Jsonb

from store.batches import BatchSize
from store.guards import Guards
from store.records import STALE_RUNNING_REAP_ATTRIBUTION
from tests.race.conftest import Crew
from tests.race.jobs import PATIENT, Jobs
from tests.race.rows import LATELY, LONG_AGO, NOW, Rows
from tests.race.writer import Writer

AGE = 60_000


def revive(writer: Writer, handle: str) -> None:
    writer.begin_revival(handle)
    writer.commit()


def test_revival_committed_while_the_delete_waits_saves_the_row(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """The reviver has written but not committed; the reap waits, looks again, and passes over."""
    rows.finished("a", "b", "c")
    writer.begin_revival("b")

    reaping = jobs.start(jobs.reap, max_age_ms=AGE)
    reaping.waits_for(writer.pid)
    writer.commit()

    assert reaping.result() == {"reap/max_age": 2, "reap/lost_race": 1}
    assert rows.handles() == ["b"]
    assert rows.brief("b") == ("running", 2)
    assert rows.queued() == [("a", "transcript of a"), ("c", "transcript of c")]
    assert jobs.reap(max_age_ms=AGE) == {}


@pytest.mark.parametrize("status", ["running", "parked"])
def test_row_that_lives_is_saved_though_it_still_says_when_it_ended(
    rows: Rows, writer: Writer, jobs: Jobs, status: str
) -> None:
    """A reviver may leave the settling time behind: it is the status that counts."""
    rows.finished("a", "b")
    writer.begin_touch("a", status=status)

    reaping = jobs.start(jobs.reap, max_age_ms=AGE)
    reaping.waits_for(writer.pid)
    writer.commit()

    assert reaping.result() == {"reap/max_age": 1, "reap/lost_race": 1}
    assert rows.brief("a") == (status, 2)
    assert rows.row("a")["settled_at"] == LONG_AGO


def test_revival_rolled_back_while_the_delete_waits_saves_nothing(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    rows.finished("a", "b", "c")
    writer.begin_revival("b")

    reaping = jobs.start(jobs.reap, max_age_ms=AGE)
    reaping.waits_for(writer.pid)
    writer.rollback()

    assert reaping.result() == {"reap/max_age": 3}
    assert rows.handles() == []
    assert [handle for handle, _ in rows.queued()] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("arm", "policy"), [("max_age", {"max_age_ms": AGE}), ("keep", {"keep": 0})]
)
def test_revival_held_for_longer_than_the_job_waits_costs_only_its_own_row(
    rows: Rows, writer: Writer, hasty_jobs: Jobs, arm: str, policy: dict[str, Any]
) -> None:
    """The batch is done again past what is locked; the attempt before it counted nothing."""
    rows.finished("a", "b", "c")
    rows.finished("d", "e", scope="t")
    writer.begin_revival("b")

    assert hasty_jobs.reap(**policy, scopes=["s", "t"]) == {f"reap/{arm}": 4, "reap/lost_race": 1}

    assert hasty_jobs.database.ran["reap_past_locks"] == 1
    assert (rows.handles("s"), rows.handles("t")) == (["b"], [])
    assert rows.journal() == {f"reap/{arm}": 4, "reap/lost_race": 1}
    assert [handle for handle, _ in rows.queued()] == ["a", "c"]

    writer.rollback()

    assert hasty_jobs.reap(**policy) == {f"reap/{arm}": 1}
    assert rows.handles() == []
    assert rows.queued() == [(h, f"transcript of {h}") for h in ("a", "b", "c")]


def test_revival_committed_after_the_delete_looked_but_before_it_got_there_saves_the_row(
    rows: Rows, writer: Writer, other_writer: Writer, jobs: Jobs
) -> None:
    """The delete waits at 'a' with the old 'c' in its snapshot; 'c' is revived and committed."""
    rows.finished("a", "b", "c")
    other_writer.begin_touch("a")

    reaping = jobs.start(jobs.reap, max_age_ms=AGE)
    reaping.waits_for(other_writer.pid)
    revive(writer, "c")
    other_writer.rollback()

    assert reaping.result() == {"reap/max_age": 2, "reap/lost_race": 1}
    assert rows.handles() == ["c"]
    assert rows.brief("c") == ("running", 2)


def test_row_that_ended_anew_while_the_delete_waited_is_young_again(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """Revived and settled in one transaction: terminal as before, but of another age."""
    rows.finished("a", "b")
    writer.begin_revival("a")
    writer.begin_settling("a")

    reaping = jobs.start(jobs.reap, max_age_ms=AGE)
    reaping.waits_for(writer.pid)
    writer.commit()

    assert reaping.result() == {"reap/max_age": 1, "reap/lost_race": 1}
    assert rows.brief("a") == ("completed", 3)
    assert rows.row("a")["settled_at"] == LATELY
    assert rows.queued() == [("b", "transcript of b")]


@pytest.mark.parametrize("status", ["running", "completed"])
def test_row_deleted_and_put_again_under_its_handle_is_another_row(
    rows: Rows, writer: Writer, jobs: Jobs, status: str
) -> None:
    """The judged row is gone before the delete gets it; its successor was never judged."""
    rows.finished("a", "b")
    writer.begin_deletion("a")
    aged: dict[str, Any] = {"settled_at": LONG_AGO, "updated_at": LONG_AGO}
    put = aged if status == "completed" else {}
    writer.begin_putting("a", status=status, session_id="another", **put)

    reaping = jobs.start(jobs.reap, max_age_ms=AGE)
    reaping.waits_for(writer.pid)
    writer.commit()

    assert reaping.result() == {"reap/max_age": 1, "reap/lost_race": 1}
    assert rows.brief("a") == (status, 1)
    assert rows.queued() == [("b", "transcript of b")]


def test_row_deleted_by_its_owner_is_a_lost_race_and_releases_nothing(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """The owner's delete in flight wins; its transcript is the owner's business."""
    rows.finished("a", "b")
    writer.begin_deletion("a")

    reaping = jobs.start(jobs.reap, max_age_ms=AGE)
    reaping.waits_for(writer.pid)
    writer.commit()

    assert reaping.result() == {"reap/max_age": 1, "reap/lost_race": 1}
    assert rows.handles() == []
    assert rows.queued() == [("b", "transcript of b")]


def test_transcript_bound_while_the_delete_waits_is_the_one_that_is_released(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """A write that leaves the row due is no revival, but its newest version is what goes."""
    rows.finished("a")
    writer.begin_touch("a", session_id="bound at last")

    reaping = jobs.start(jobs.reap, max_age_ms=AGE)
    reaping.waits_for(writer.pid)
    writer.commit()

    assert reaping.result() == {"reap/max_age": 1}
    assert rows.queued() == [("a", "bound at last")]


def test_revival_between_the_keep_boundary_and_the_delete_saves_the_row(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    rows.finished("a", "b", "c", "d")
    jobs.database.after("reap_keep_boundary", lambda: revive(writer, "a"))

    assert jobs.reap(keep=2) == {"reap/keep": 1}

    assert rows.handles() == ["a", "c", "d"]
    assert rows.brief("a") == ("running", 2)
    assert rows.queued() == [("b", "transcript of b")]


def test_row_that_ended_anew_after_the_keep_boundary_is_not_beyond_it(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """'a' was the oldest when the boundary was drawn, and is the newest when the delete comes."""
    rows.finished("a", "b", "c")

    def ends_anew() -> None:
        writer.begin_revival("a")
        writer.begin_settling("a")
        writer.commit()

    jobs.database.after("reap_keep_boundary", ends_anew)

    assert jobs.reap(keep=1) == {"reap/keep": 1}

    assert rows.handles() == ["a", "c"]


def test_rows_that_end_after_the_keep_boundary_draw_no_other_one(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """One run never deletes more than it judged; the next run draws its own boundary."""
    rows.finished("a", "b", "c")

    def ends() -> None:
        writer.begin_putting("z", status="failed", settled_at=LATELY)
        writer.commit()

    jobs.database.after("reap_keep_boundary", ends)

    assert jobs.reap(keep=2) == {"reap/keep": 1}
    assert rows.handles() == ["b", "c", "z"]
    assert jobs.reap(keep=2) == {"reap/keep": 1}
    assert rows.handles() == ["c", "z"]


def test_row_put_again_after_the_keep_boundary_with_an_old_time_goes_as_what_it_is(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """The successor is finished and beyond the boundary itself: its own transcript is queued."""
    rows.finished("a", "b", "c")

    def put_again() -> None:
        writer.begin_deletion("a")
        writer.begin_putting("a", status="failed", settled_at=LONG_AGO, session_id="second life")
        writer.commit()

    jobs.database.after("reap_keep_boundary", put_again)

    assert jobs.reap(keep=2) == {"reap/keep": 1}
    assert rows.queued() == [("a", "second life")]


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_revival_in_flight_beyond_the_keep_boundary(
    rows: Rows, writer: Writer, jobs: Jobs, ending: str
) -> None:
    """Committed while the delete waits it saves the row; rolled back it does not."""
    rows.finished("a", "b", "c")
    writer.begin_revival("a")

    reaping = jobs.start(jobs.reap, keep=1)
    reaping.waits_for(writer.pid)
    getattr(writer, ending)()

    if ending == "commit":
        assert reaping.result() == {"reap/keep": 1, "reap/lost_race": 1}
        assert rows.handles() == ["a", "c"]
    else:
        assert reaping.result() == {"reap/keep": 2}
        assert rows.handles() == ["c"]
    assert len(rows.queued()) == 3 - len(rows.handles())


def test_revival_in_flight_of_a_row_that_never_said_when_it_ended_is_passed_over(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """Rows without a settling time are never waited for: not even a patient job stands still."""
    for handle in ("a", "b", "c"):
        rows.agent(handle, status="killed", session_id=f"transcript of {handle}")
    writer.begin_revival("b")

    assert jobs.reap(max_age_ms=AGE) == {"reap/max_age": 2, "reap/lost_race": 1}
    assert rows.handles() == ["b"]

    writer.commit()

    assert jobs.reap(max_age_ms=AGE) == {}
    assert rows.brief("b") == ("running", 2)
    assert rows.queued() == [("a", "transcript of a"), ("c", "transcript of c")]


def test_revival_rolled_back_leaves_an_unsettled_row_to_the_next_run(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    rows.agent("a", status="killed")
    writer.begin_revival("a")

    assert jobs.reap(keep=0) == {"reap/lost_race": 1}
    writer.rollback()

    assert jobs.reap(keep=0) == {"reap/keep": 1}
    assert rows.handles() == []


def test_settling_time_told_before_the_unsettled_rows_are_deleted_makes_the_row_young(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """Its writer corrects itself after the settled rows were done: the row is no longer due."""
    rows.finished("a")
    rows.agent("b", status="killed")

    def corrects() -> None:
        writer.begin_touch("b", settled_at=LATELY)
        writer.commit()

    jobs.database.before("reap_unsettled", corrects)

    assert jobs.reap(max_age_ms=AGE) == {"reap/max_age": 1}
    assert rows.handles() == ["b"]


def test_revival_before_the_batch_is_done_again_past_locks_saves_the_row(
    rows: Rows, writer: Writer, other_writer: Writer, hasty_jobs: Jobs
) -> None:
    """'b' holds the batch up; by the time it is done again, 'c' has been revived."""
    rows.finished("a", "b", "c")
    other_writer.begin_touch("b")
    hasty_jobs.database.before("reap_past_locks", lambda: revive(writer, "c"))

    assert hasty_jobs.reap(max_age_ms=AGE) == {"reap/max_age": 1, "reap/lost_race": 1}

    assert rows.handles() == ["b", "c"]
    assert rows.brief("c") == ("running", 2)
    assert rows.queued() == [("a", "transcript of a")]


def test_every_row_held_means_nothing_is_done(rows: Rows, writer: Writer, hasty_jobs: Jobs) -> None:
    rows.finished("a", "b")
    writer.begin_revival("a")
    writer.begin_revival("b")

    assert hasty_jobs.reap(max_age_ms=AGE) == {"reap/lost_race": 2}

    assert rows.handles() == ["a", "b"]
    assert rows.queued() == []


def test_a_held_row_does_not_hide_the_rows_behind_it(
    rows: Rows, writer: Writer, hasty_jobs: Jobs
) -> None:
    """Batches of one row: the first row is held, the others are all reached."""
    rows.finished("a", "b", "c", "d")
    hasty_jobs.size = BatchSize(rows=1, scopes=1)
    writer.begin_revival("a")

    assert hasty_jobs.reap(max_age_ms=AGE) == {"reap/max_age": 3, "reap/lost_race": 1}

    writer.commit()
    assert rows.handles() == ["a"]


def test_a_row_judged_in_one_batch_is_judged_again_in_its_own(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """Between two batches 'c' is revived: no list drawn up before is worked off."""
    rows.finished("a", "b", "c", "d")
    jobs.size = BatchSize(rows=2, scopes=1)
    jobs.database.after("reap", lambda: revive(writer, "c"))

    assert jobs.reap(max_age_ms=AGE) == {"reap/max_age": 3}

    assert rows.handles() == ["c"]


def test_running_and_parked_rows_are_never_waited_for(
    rows: Rows, writer: Writer, other_writer: Writer, crew: Crew
) -> None:
    """Heartbeats and resumes in flight do not hold a reap up: they are none of its rows."""
    rows.finished("a")
    rows.running("r")
    rows.parked("p", "token")
    writer.begin_heartbeat("r")
    other_writer.begin_resuming("p")

    assert crew.jobs(PATIENT).reap(max_age_ms=0, keep=0) == {"reap/max_age": 1}

    assert rows.handles() == ["p", "r"]


GUARDED = Guards().without(["plausible-times"])
FLIP = {"error": STALE_RUNNING_REAP_ATTRIBUTION, "summary": STALE_RUNNING_REAP_ATTRIBUTION}


def test_row_that_shows_itself_as_a_living_writers_flip_while_the_delete_waits_is_kept(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """The guard is judged whole on the newest version: the older one was an ordinary row."""
    rows.finished("a", "b", "c")
    rows.running("alive", updated_at=LATELY)
    writer.begin_touch("b", status="failed", content=Jsonb(FLIP))

    reaping = jobs.start(jobs.reap, max_age_ms=AGE, guards=GUARDED)
    reaping.waits_for(writer.pid)
    writer.commit()

    assert reaping.result() == {"reap/max_age": 2, "reap/skipped/fresh_flip": 1}
    assert rows.brief("b") == ("failed", 2)
    assert [handle for handle, _ in rows.queued()] == ["a", "c"]


def test_writer_that_corrects_its_flip_is_not_waited_for_and_keeps_row_and_transcript(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """Its row is kept by the guard, so that the delete does not even want the lock."""
    for handle in ("a", "b"):
        rows.agent(handle, status="failed", settled_at=NOW - AGE - 1, content=FLIP, session_id="x")
    writer.begin_settling("a")

    assert jobs.reap(max_age_ms=AGE, guards=GUARDED) == {"reap/skipped/fresh_flip": 2}

    writer.commit()
    assert rows.brief("a") == ("completed", 2)
    assert rows.queued() == []


def test_flip_that_its_writer_revives_while_the_delete_waits_is_a_lost_race(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """It is old, and its writer was not seen when the batch began: the row alone saves itself."""
    rows.finished("a")
    rows.agent("b", status="failed", settled_at=LONG_AGO, content=FLIP)
    writer.begin_revival("b")

    reaping = jobs.start(jobs.reap, max_age_ms=AGE, guards=GUARDED)
    reaping.waits_for(writer.pid)
    writer.commit()

    assert reaping.result() == {"reap/max_age": 1, "reap/lost_race": 1}
    assert rows.brief("b") == ("running", 2)


def test_fresh_flips_are_kept_past_locks_too(rows: Rows, writer: Writer, hasty_jobs: Jobs) -> None:
    """The batch is done again for a row that somebody holds; the guard counts once."""
    rows.finished("a", "b")
    rows.agent("c", status="failed", settled_at=NOW - AGE - 1, content=FLIP)
    writer.begin_touch("b")

    counted = hasty_jobs.reap(max_age_ms=AGE, guards=GUARDED)

    assert hasty_jobs.database.ran["reap_past_locks"] == 1
    assert counted == {"reap/max_age": 1, "reap/lost_race": 1, "reap/skipped/fresh_flip": 1}
    assert rows.handles() == ["b", "c"]
