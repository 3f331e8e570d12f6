"""Who wins when a row that looks silent is heard of, settles or parks while it is being flipped."""

from collections.abc import Callable

import pytest

from store.agents import PostgresAgentStore
from store.records import STALE_RUNNING_REAP_ATTRIBUTION
from tests.race.background import Background
from tests.race.conftest import Crew
from tests.race.jobs import PATIENT, Jobs
from tests.race.rows import LATELY, NOW, Rows
from tests.race.writer import Writer

FLIPPED = "flip_stale_running/flipped"
LOST_RACE = "flip_stale_running/lost_race"
SKIPPED = "flip_stale_running/skipped/checkpoint_locked"


def test_heartbeat_committed_while_the_flip_waits_saves_the_row(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """The heartbeat is written but not committed; the flip waits, looks again, and passes over."""
    rows.running("a", "b", "c")
    writer.begin_heartbeat("b")

    flipping = jobs.start(jobs.flip)
    flipping.waits_for(writer.pid)
    writer.commit()

    assert flipping.result() == {FLIPPED: 2, LOST_RACE: 1}
    assert rows.brief("b") == ("running", 2)
    assert rows.row("b")["updated_at"] == LATELY
    assert "error" not in rows.row("b")["content"]
    assert [rows.brief(handle) for handle in ("a", "c")] == [("failed", 2)] * 2


def test_heartbeat_rolled_back_while_the_flip_waits_saves_nothing(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    rows.running("a", "b")
    writer.begin_heartbeat("b")

    flipping = jobs.start(jobs.flip)
    flipping.waits_for(writer.pid)
    writer.rollback()

    assert flipping.result() == {FLIPPED: 2}
    assert rows.brief("b") == ("failed", 2)


def test_heartbeat_held_for_longer_than_the_job_waits_costs_only_its_own_row(
    rows: Rows, writer: Writer, hasty_jobs: Jobs
) -> None:
    rows.running("a", "b", "c")
    rows.running("d", scope="t")
    writer.begin_heartbeat("b")

    assert hasty_jobs.flip(scopes=["s", "t"]) == {FLIPPED: 3, LOST_RACE: 1}

    assert hasty_jobs.database.ran["flip_stale_running_past_locks"] == 1
    assert rows.journal() == {FLIPPED: 3, LOST_RACE: 1}
    assert rows.brief("d", "t") == ("failed", 2)

    writer.commit()

    assert hasty_jobs.flip(scopes=["s", "t"]) == {}
    assert rows.brief("b") == ("running", 2)


def test_heartbeat_committed_after_the_flip_looked_but_before_it_got_there_saves_the_row(
    rows: Rows, writer: Writer, other_writer: Writer, jobs: Jobs
) -> None:
    """The flip waits at 'a' with the old 'c' in its snapshot; 'c' is renewed and committed."""
    rows.running("a", "b", "c")
    other_writer.begin_heartbeat("a")

    flipping = jobs.start(jobs.flip)
    flipping.waits_for(other_writer.pid)
    writer.begin_heartbeat("c")
    writer.commit()
    other_writer.rollback()

    assert flipping.result() == {FLIPPED: 2, LOST_RACE: 1}
    assert rows.brief("c") == ("running", 2)


def test_heartbeat_before_the_batch_is_done_again_past_locks_saves_the_row(
    rows: Rows, writer: Writer, other_writer: Writer, hasty_jobs: Jobs
) -> None:
    rows.running("a", "b", "c")
    other_writer.begin_heartbeat("b")

    def renews() -> None:
        writer.begin_heartbeat("c")
        writer.commit()

    hasty_jobs.database.before("flip_stale_running_past_locks", renews)

    assert hasty_jobs.flip() == {FLIPPED: 1, LOST_RACE: 1}
    assert [rows.brief(handle) for handle in ("a", "b", "c")] == [
        ("failed", 2),
        ("running", 1),
        ("running", 2),
    ]


@pytest.mark.parametrize(
    ("begin", "status"),
    [
        (lambda writer: writer.begin_settling("a"), "completed"),
        (lambda writer: writer.begin_parking("a", "token"), "parked"),
        (lambda writer: writer.begin_putting("a"), "running"),
    ],
    ids=["settles", "parks", "is replaced"],
)
def test_row_that_moves_on_while_the_flip_waits_is_left_as_it_is(
    rows: Rows, writer: Writer, jobs: Jobs, begin: Callable[[Writer], None], status: str
) -> None:
    rows.running("a")
    rows.checkpoint("token")
    if status == "running":
        writer.begin_deletion("a")
    begin(writer)

    flipping = jobs.start(jobs.flip)
    flipping.waits_for(writer.pid)
    writer.commit()

    assert flipping.result() == {LOST_RACE: 1}
    assert rows.row("a")["status"] == status
    assert "error" not in rows.row("a")["content"]


def test_row_claimed_for_a_resume_while_the_flip_waits_is_its_checkpoints_business(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """Still silent and running, but now bound to a pending approval: not judged without it."""
    rows.running("a")
    rows.checkpoint("token")
    writer.begin_touch("a", parked_checkpoint_token="token", park_claim_id="claim")

    flipping = jobs.start(jobs.flip)
    flipping.waits_for(writer.pid)
    writer.commit()

    assert flipping.result() == {LOST_RACE: 1}
    assert rows.brief("a") == ("running", 2)


def test_writer_that_settles_after_the_flip_corrects_it(
    rows: Rows, jobs: Jobs, agents: PostgresAgentStore
) -> None:
    """Writer and epoch stay, so its settle loses once, adopts the new revision, and wins."""
    rows.running("a")
    own = agents.get("a", "s")
    assert own is not None

    assert jobs.flip() == {FLIPPED: 1}

    own.status, own.settled_at, own.updated_at = "completed", LATELY, LATELY
    assert not agents.update("a", "s", own, own.rev)
    guess = agents.get("a", "s")
    assert guess is not None
    assert (guess.writer_id, guess.writer_epoch) == (own.writer_id, own.writer_epoch)
    assert guess.content["error"] == STALE_RUNNING_REAP_ATTRIBUTION
    assert agents.update("a", "s", own, guess.rev)
    assert rows.brief("a") == ("completed", 3)
    assert "error" not in rows.row("a")["content"]


def test_settle_that_waits_for_a_flip_in_flight_loses_to_it_and_then_corrects_it(
    rows: Rows, jobs: Jobs, crew: Crew
) -> None:
    """The flip is written but not committed when the writer settles at the revision it holds."""
    rows.running("a")
    writing = crew.jobs(PATIENT, "settling writer").database
    store = PostgresAgentStore(writing)
    own = store.get("a", "s")
    assert own is not None
    own.status, own.settled_at, own.updated_at = "completed", LATELY, LATELY
    settles: list[Background[bool]] = []

    def settle_begins() -> None:
        settling = Background(
            lambda: store.update("a", "s", own, own.rev), rows, writing.application
        )
        settling.waits_for(jobs.database.backend_pid)
        settles.append(settling)

    jobs.database.after("flip_stale_running", settle_begins)

    assert jobs.flip() == {FLIPPED: 1}
    assert settles[0].result() is False
    assert rows.brief("a") == ("failed", 2)
    assert store.update("a", "s", own, 2)
    assert rows.brief("a") == ("completed", 3)


def test_silent_row_with_a_claim_is_flipped_under_its_dead_checkpoint(
    rows: Rows, jobs: Jobs
) -> None:
    """What the following tests take away from: nobody interferes, and each of these goes."""
    rows.checkpoint("expired", status="expired", updated_at=5)
    rows.checkpoint("overdue", expires_at=NOW)
    rows.checkpoint("resolved", status="resolved", updated_at=5)
    for token in ("expired", "overdue", "resolved", "missing"):
        rows.claimed(token, token)

    assert jobs.flip() == {FLIPPED: 4}

    assert {rows.brief(handle) for handle in rows.handles()} == {("failed", 2)}
    assert rows.approval("overdue") == ("pending", None)


@pytest.mark.parametrize(
    ("begin", "left"),
    [
        pytest.param(lambda w: w.begin_heartbeat("a"), ("running", 2), id="heartbeat"),
        pytest.param(lambda w: w.begin_finalizing("a"), ("running", 2), id="claim finalized"),
        pytest.param(lambda w: w.begin_settling("a"), ("completed", 2), id="settled"),
        pytest.param(lambda w: w.begin_parking("a", "another"), ("parked", 2), id="parked anew"),
        # Its times are as old as before: only the claim tells it from the row that was judged.
        pytest.param(
            lambda w: w.begin_touch("a", park_claim_id="next"), ("running", 2), id="claimed anew"
        ),
    ],
)
@pytest.mark.parametrize("moment", ["lock_checkpoints", "flip_judged"])
def test_claimed_row_that_moves_between_judgement_and_write_is_a_lost_race(
    rows: Rows,
    writer: Writer,
    jobs: Jobs,
    moment: str,
    begin: Callable[[Writer], None],
    left: tuple[str, int],
) -> None:
    rows.checkpoint("token", status="expired", updated_at=5)
    rows.checkpoint("another")
    rows.claimed("a", "token")
    rows.claimed("b", "token")

    def moves() -> None:
        begin(writer)
        writer.commit()

    jobs.database.before(moment, moves)

    assert jobs.flip() == {FLIPPED: 1, LOST_RACE: 1}
    assert rows.brief("a") == left
    assert "error" not in rows.row("a")["content"]
    assert rows.brief("b") == ("failed", 2)


@pytest.mark.parametrize(
    ("token", "begin"),
    [
        pytest.param("expired", lambda w: w.begin_reopening("expired"), id="asked again"),
        pytest.param("overdue", lambda w: w.begin_renewal("overdue", NOW + 1), id="given time"),
        pytest.param("overdue", lambda w: w.begin_approval("overdue"), id="approved"),
        pytest.param("missing", lambda w: w.begin_asking("missing"), id="asked at last"),
    ],
)
def test_checkpoint_that_moves_between_judgement_and_lock_saves_its_row(
    rows: Rows, writer: Writer, jobs: Jobs, token: str, begin: Callable[[Writer], None]
) -> None:
    """The row is exactly as it was judged; what it was judged by is not."""
    rows.checkpoint("expired", status="expired", updated_at=5)
    rows.checkpoint("overdue", expires_at=NOW)
    rows.claimed("a", token)
    rows.claimed("b", "nowhere")

    def moves() -> None:
        begin(writer)
        writer.commit()

    jobs.database.before("lock_checkpoints", moves)

    assert jobs.flip() == {FLIPPED: 1, LOST_RACE: 1}
    assert rows.brief("a") == ("running", 1)
    assert rows.brief("b") == ("failed", 2)


def test_missing_checkpoint_that_is_made_after_the_locks_saves_its_row(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """There was nothing to lock, so the write looks once more."""
    rows.claimed("a", "missing")

    def asks() -> None:
        writer.begin_asking("missing")
        writer.commit()

    jobs.database.before("flip_judged", asks)

    assert jobs.flip() == {LOST_RACE: 1}
    assert rows.brief("a") == ("running", 1)


@pytest.mark.parametrize(
    ("begin", "then"),
    [
        pytest.param(lambda w: w.begin_approval("token"), {}, id="approval"),
        pytest.param(lambda w: w.begin_renewal("token", NOW + 1), {}, id="renewal"),
        pytest.param(lambda w: w.begin_withdrawal("token"), {FLIPPED: 1}, id="withdrawal"),
    ],
)
def test_checkpoint_in_somebodys_hand_is_passed_over_with_its_row(
    rows: Rows,
    writer: Writer,
    jobs: Jobs,
    begin: Callable[[Writer], None],
    then: dict[str, int],
) -> None:
    """Nobody waits: what the other decides is judged by the next run."""
    rows.checkpoint("token", expires_at=NOW)
    rows.claimed("a", "token")
    rows.claimed("b", "nowhere")
    begin(writer)

    assert jobs.flip() == {FLIPPED: 1, SKIPPED: 1}
    assert rows.brief("a") == ("running", 1)

    writer.commit()
    assert jobs.flip() == then


def test_checkpoint_withdrawn_between_lock_and_write_has_its_row_counted_once(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """Held when the locks are taken and gone when the row is written: one row, one count."""
    rows.checkpoint("token", expires_at=NOW)
    rows.claimed("a", "token")
    writer.begin_withdrawal("token")
    jobs.database.before("flip_judged", writer.commit)

    counted = jobs.flip()

    assert counted == ({FLIPPED: 1} if rows.brief("a") == ("failed", 2) else {SKIPPED: 1})


def test_claimed_row_in_its_writers_hand_is_passed_over(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    rows.claimed("a", "nowhere")
    rows.claimed("b", "nowhere")
    writer.begin_heartbeat("a")

    assert jobs.flip() == {FLIPPED: 1, LOST_RACE: 1}
    writer.rollback()

    assert rows.brief("a") == ("running", 1)
    assert jobs.flip() == {FLIPPED: 1}
    assert rows.brief("a") == ("failed", 2)


def test_without_checkpoints_a_claimed_rows_heartbeat_in_flight_saves_it_too(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """The store's own reap may be called without them; the row alone is then judged."""
    rows.checkpoint("token")
    rows.claimed("a", "token")
    rows.claimed("b", "token")
    writer.begin_heartbeat("a")

    flipping = jobs.start(jobs.flip, ask_checkpoints=False)
    flipping.waits_for(writer.pid)
    writer.commit()

    assert flipping.result() == {FLIPPED: 1, LOST_RACE: 1}
    assert rows.brief("a") == ("running", 2)
    assert rows.brief("b") == ("failed", 2)
