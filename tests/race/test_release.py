"""Who wins when a transcript, or a row that names it, is written while it is being released."""

from datetime import timedelta

import psycopg
import pytest

from store.errors import StoreUnavailable
from store.release_sessions import Drain
from tests.race.conftest import Crew
from tests.race.jobs import PATIENT, Jobs
from tests.race.rows import NOW, Rows
from tests.race.writer import Writer

JOB = "release_sessions"
LEASE = timedelta(minutes=5)
LEASE_OVER = NOW + 300_000
DRAIN = Drain(lease=LEASE, backoff=timedelta(seconds=30))
PAUSE_OVER = NOW + 30_000


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_transcript_in_its_writers_hand_is_passed_over_and_looked_at_again(
    rows: Rows, writer: Writer, jobs: Jobs, ending: str
) -> None:
    """Nobody waits. What was written makes it suspect; what was taken back does not."""
    for session in ("a", "b"):
        rows.session(session)
    rows.queue("a", "b")
    writer.begin_transcript("a")

    assert jobs.release(drain=DRAIN) == {f"{JOB}/locked": 1, f"{JOB}/released": 1}
    assert rows.transcripts() == ["a"]

    getattr(writer, ending)()

    assert jobs.release(PAUSE_OVER - 1, DRAIN) == {}
    if ending == "commit":
        assert jobs.release(PAUSE_OVER, DRAIN) == {f"{JOB}/suspect": 1}
        assert rows.transcripts() == ["a"]
        assert rows.scalar("select state from maintenance.session_releases") == "suspect"
    else:
        assert jobs.release(PAUSE_OVER, DRAIN) == {f"{JOB}/released": 1}
        assert rows.transcripts() == []
        assert rows.queued() == []


@pytest.mark.parametrize("moment", ["lock_sessions", "claim_releases"])
def test_transcript_written_before_it_is_locked_is_suspect(
    rows: Rows, writer: Writer, jobs: Jobs, moment: str
) -> None:
    rows.session("a")
    rows.queue("a")

    def writes() -> None:
        writer.begin_transcript("a")
        writer.commit()

    jobs.database.before(moment, writes)

    assert jobs.release() == {f"{JOB}/suspect": 1}
    assert rows.transcripts() == ["a"]


def test_row_that_names_the_transcript_before_it_is_judged_keeps_it(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """Put after the entry was claimed and the transcript locked: the entry is dropped."""
    rows.session("a")
    rows.queue("a")

    def names() -> None:
        writer.begin_putting("revived", session_id="a")
        writer.commit()

    jobs.database.before("release_sessions", names)

    assert jobs.release() == {f"{JOB}/named": 1}
    assert rows.transcripts() == ["a"]
    assert rows.queued() == []


def test_drain_that_outlives_its_lease_counts_nothing(rows: Rows, jobs: Jobs, crew: Crew) -> None:
    """Another drain claims the entries of a slow one and finishes them; the slow one sees that."""
    for session in ("a", "b"):
        rows.session(session)
    rows.queue("a", "b")
    other = crew.jobs(PATIENT, "other job")
    counted: list[dict[str, int]] = []
    jobs.database.before("lock_sessions", lambda: counted.append(other.release(LEASE_OVER, DRAIN)))

    assert jobs.release(NOW, DRAIN) == {}

    assert counted == [{f"{JOB}/released": 2}]
    assert rows.journal() == {f"{JOB}/released": 2}


def test_drain_that_outlives_its_lease_leaves_entries_to_whoever_claimed_them_since(
    rows: Rows, jobs: Jobs, crew: Crew
) -> None:
    """The other drain has claimed them and dies of it: the slow one must not step in."""
    rows.session("a")
    rows.queue("a")
    other = crew.jobs(PATIENT, "other job")

    def other_claims_and_dies() -> None:
        other.database.before(
            "lock_sessions",
            lambda: rows.scalar(
                "select pg_terminate_backend(%s, 10000)", other.database.backend_pid
            ),
        )
        with pytest.raises(StoreUnavailable):
            other.release(LEASE_OVER, DRAIN)

    jobs.database.before("lock_sessions", other_claims_and_dies)

    assert jobs.release(NOW, DRAIN) == {}
    assert rows.transcripts() == ["a"]
    assert jobs.release(LEASE_OVER + 300_000, DRAIN) == {f"{JOB}/released": 1}


@pytest.mark.parametrize("moment", ["lock_sessions", "release_sessions"])
def test_drain_that_dies_holding_a_claim_strands_and_destroys_nothing(
    rows: Rows, jobs: Jobs, moment: str
) -> None:
    """Whatever it did is undone with its backend; the entries are due when its lease ends."""
    for session in ("a", "b"):
        rows.session(session)
    rows.queue("a", "b")

    def dies() -> None:
        rows.scalar("select pg_terminate_backend(%s, 10000)", jobs.database.backend_pid)

    jobs.database.after(moment, dies)

    with pytest.raises(StoreUnavailable):
        jobs.release(NOW, DRAIN)

    assert rows.transcripts() == ["a", "b"]
    assert [session for _, session in rows.queued()] == ["a", "b"]
    assert rows.journal() == {}
    assert jobs.release(LEASE_OVER - 1, DRAIN) == {}
    assert jobs.release(LEASE_OVER, DRAIN) == {f"{JOB}/released": 2}
    assert rows.transcripts() == []
    assert rows.queued() == []


def test_two_drains_share_the_outbox(ledger_url: str, rows: Rows, jobs: Jobs, crew: Crew) -> None:
    """Every transcript goes once and is counted once, whoever got its entry."""
    sessions = [f"talk {number:03}" for number in range(300)]
    for session in sessions:
        rows.session(session)
    rows.queue(*sessions)
    other = crew.jobs(PATIENT, "other job")
    small = Drain(batch=10)

    with psycopg.connect(ledger_url) as holder:
        # Neither begins before both stand at the outbox.
        holder.execute("lock table maintenance.session_releases in access exclusive mode")
        drains = [each.start(each.release, drain=small) for each in (jobs, other)]
        for drain in drains:
            drain.waits_for(holder.info.backend_pid)
        holder.rollback()
        counts = [drain.result().get(f"{JOB}/released", 0) for drain in drains]

    assert sum(counts) == 300
    assert rows.journal() == {f"{JOB}/released": 300}
    assert rows.transcripts() == []
    assert rows.queued() == []
