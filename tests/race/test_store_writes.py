"""Who wins when two write the same row, checkpoint or transcript through the store at once."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from store.agents import PostgresAgentStore
from store.checkpoints import PostgresCheckpointStore
from store.contract import Checkpoint, Expect, Session
from store.errors import AlreadyExists, TimedOut
from store.records import AgentRecord
from store.sessions import PostgresSessionStore
from tests.race.background import Background
from tests.race.jobs import Jobs
from tests.race.rows import LATELY, LONG_AGO, Rows
from tests.race.writer import Writer

_T = TypeVar("_T")


def new_record(handle: str = "a", **members: object) -> AgentRecord:
    given: dict[str, object] = {
        "handle": handle,
        "scope": "s",
        "owner": "task",
        "sessionScoped": False,
        "writerId": "host-new",
        "spawnedAt": 1,
        "updatedAt": LATELY,
        "status": "running",
        "rev": 1,
    }
    return AgentRecord.from_json(given | members)


def in_background(rows: Rows, jobs: Jobs, act: Callable[[], _T]) -> Background[_T]:
    return Background(act, rows, jobs.database.application)


def held(agents: PostgresAgentStore) -> AgentRecord:
    """The record as a writer holds it before the race begins."""
    record = agents.get("a", "s")
    assert record is not None
    record.content["finalOutput"] = "from the store"
    return record


def test_put_of_a_key_that_is_being_put_waits_and_finds_it_taken(
    rows: Rows, writer: Writer, jobs: Jobs, agents: PostgresAgentStore
) -> None:
    writer.begin_putting("a")

    putting = in_background(rows, jobs, lambda: agents.put(new_record()))
    putting.waits_for(writer.pid)
    writer.commit()

    with pytest.raises(AlreadyExists, match="'a'"):
        putting.result()
    assert rows.row("a")["writer_id"] == "host-b"


def test_put_of_a_key_whose_other_put_is_taken_back_succeeds(
    rows: Rows, writer: Writer, jobs: Jobs, agents: PostgresAgentStore
) -> None:
    writer.begin_putting("a")

    putting = in_background(rows, jobs, lambda: agents.put(new_record()))
    putting.waits_for(writer.pid)
    writer.rollback()

    putting.result()
    assert rows.row("a")["writer_id"] == "host-new"


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_put_of_a_key_that_is_being_deleted(
    rows: Rows, writer: Writer, jobs: Jobs, agents: PostgresAgentStore, ending: str
) -> None:
    """The key is free once the delete has committed, and taken if it has not."""
    rows.finished("a")
    writer.begin_deletion("a")

    putting = in_background(rows, jobs, lambda: agents.put(new_record()))
    putting.waits_for(writer.pid)
    getattr(writer, ending)()

    if ending == "commit":
        putting.result()
        assert rows.brief("a") == ("running", 1)
    else:
        with pytest.raises(AlreadyExists):
            putting.result()
        assert rows.brief("a") == ("completed", 1)


def test_put_of_a_key_that_the_reap_is_deleting_starts_a_new_life(
    rows: Rows, jobs: Jobs, hasty_jobs: Jobs
) -> None:
    """The old transcript is queued all the same; whether it may go is judged at the drain."""
    rows.finished("a")
    store = PostgresAgentStore(hasty_jobs.database)

    def put_meets_the_delete() -> None:
        with pytest.raises(TimedOut):
            store.put(new_record())

    jobs.database.after("reap", put_meets_the_delete)

    assert jobs.reap(max_age_ms=60_000) == {"reap/max_age": 1}
    store.put(new_record(sessionId="transcript of a"))

    assert rows.brief("a") == ("running", 1)
    assert rows.queued() == [("a", "transcript of a")]


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_update_at_a_revision_that_is_being_left(
    rows: Rows, writer: Writer, jobs: Jobs, agents: PostgresAgentStore, ending: str
) -> None:
    """It waits for the other's write, and holds only if that is taken back."""
    rows.running("a")
    record = held(agents)
    writer.begin_heartbeat("a")

    updating = in_background(rows, jobs, lambda: agents.update("a", "s", record, 1))
    updating.waits_for(writer.pid)
    getattr(writer, ending)()

    assert updating.result() is (ending == "rollback")
    assert rows.brief("a") == ("running", 2)
    assert ("finalOutput" in rows.row("a")["content"]) is (ending == "rollback")


def test_update_of_a_row_that_is_deleted_and_put_again_at_the_same_revision(
    rows: Rows, writer: Writer, jobs: Jobs, agents: PostgresAgentStore
) -> None:
    """The successor is not the row that was waited for, however much it looks like it."""
    rows.running("a")
    record = held(agents)
    writer.begin_deletion("a")
    writer.begin_putting("a")

    updating = in_background(rows, jobs, lambda: agents.update("a", "s", record, 1))
    updating.waits_for(writer.pid)
    writer.commit()

    assert updating.result() is False
    assert rows.row("a")["writer_id"] == "host-b"


def test_of_many_updates_at_one_revision_one_wins(
    rows: Rows, jobs: Jobs, agents: PostgresAgentStore
) -> None:
    rows.running("a")
    records = [held(agents) for _ in range(4)]
    for number, record in enumerate(records):
        record.name = f"attempt {number}"

    def update(record: AgentRecord) -> Callable[[], bool]:
        return lambda: agents.update("a", "s", record, 1)

    attempts = [in_background(rows, jobs, update(record)) for record in records]
    won = [attempt.result() for attempt in attempts]

    assert sorted(won) == [False, False, False, True]
    assert rows.brief("a") == ("running", 2)
    assert rows.row("a")["name"] == f"attempt {won.index(True)}"


@pytest.mark.parametrize(
    ("expect", "begin"),
    [
        ({"status": "parked"}, lambda w: w.begin_touch("a", status="running")),
        (
            {"parked_checkpoint_token": "T1"},
            lambda w: w.begin_touch("a", parked_checkpoint_token="T2"),
        ),
        (
            {"parked_checkpoint_token": "T1"},
            lambda w: w.begin_touch("a", parked_checkpoint_token=None),
        ),
        ({"park_claim_id": None}, lambda w: w.begin_touch("a", park_claim_id="claim")),
        ({"park_claim_id": None}, lambda w: w.begin_touch("a", park_claim_id="")),
    ],
)
def test_update_if_is_judged_on_what_the_row_has_become(
    rows: Rows,
    writer: Writer,
    jobs: Jobs,
    agents: PostgresAgentStore,
    expect: Expect,
    begin: Callable[[Writer], None],
) -> None:
    """The revision the caller names is the one the other's write leads to; the rest is not."""
    rows.parked("a", "T1")
    record = held(agents)
    begin(writer)

    asked: Expect = {**expect, "rev": 2}
    # WHY not in the background: the row is not at revision 2 yet, so there is nothing to wait for.
    assert agents.update_if("a", "s", record, asked) is False
    waiting: Expect = {**expect, "rev": 1}
    updating = in_background(rows, jobs, lambda: agents.update_if("a", "s", record, waiting))
    updating.waits_for(writer.pid)
    writer.commit()

    assert updating.result() is False
    assert agents.update_if("a", "s", record, asked) is False
    assert rows.row("a")["rev"] == 2
    assert agents.update_if("a", "s", record, {"rev": 2}) is True


@pytest.mark.parametrize(
    ("rev", "ending", "deleted"),
    [
        (1, "commit", False),
        (1, "rollback", True),
        (None, "commit", True),
        (None, "rollback", True),
    ],
)
def test_delete_of_a_row_that_is_being_revived(
    rows: Rows,
    writer: Writer,
    jobs: Jobs,
    agents: PostgresAgentStore,
    rev: int | None,
    ending: str,
    deleted: bool,
) -> None:
    """A delete at a revision loses to the revival; one without was not conditional at all."""
    rows.finished("a")
    writer.begin_revival("a")

    deleting = in_background(rows, jobs, lambda: agents.delete("a", "s", rev))
    deleting.waits_for(writer.pid)
    getattr(writer, ending)()

    assert deleting.result() is deleted
    assert rows.handles() == ([] if deleted else ["a"])
    assert rows.queued() == []


def test_delete_and_update_at_one_revision_one_wins(
    rows: Rows, writer: Writer, jobs: Jobs, agents: PostgresAgentStore
) -> None:
    """Both wait for a third; whichever is let in first, the other finds nothing to do."""
    rows.running("a")
    record = held(agents)
    writer.begin_heartbeat("a")

    updating = in_background(rows, jobs, lambda: agents.update("a", "s", record, 1))
    updating.waits_for(writer.pid)
    deleting = in_background(rows, jobs, lambda: agents.delete("a", "s", 1))
    writer.rollback()

    updated, deleted = updating.result(), deleting.result()
    assert updated is not deleted
    assert rows.handles() == ([] if deleted else ["a"])


@pytest.mark.parametrize(
    "write",
    [
        lambda store, record: store.update("a", "s", record, 1),
        lambda store, record: store.update_if("a", "s", record, {"rev": 1}),
        lambda store, _: store.delete("a", "s"),
    ],
    ids=["update", "update_if", "delete"],
)
def test_write_of_a_row_held_too_long_says_so_and_changes_nothing(
    rows: Rows,
    writer: Writer,
    hasty_jobs: Jobs,
    write: Callable[[PostgresAgentStore, AgentRecord], bool],
) -> None:
    store = PostgresAgentStore(hasty_jobs.database)
    rows.running("a")
    record = held(store)
    before = rows.row("a")
    writer.begin_heartbeat("a")

    with pytest.raises(TimedOut, match="locked by another session"):
        write(store, record)

    writer.rollback()
    assert rows.row("a") == before


@pytest.mark.parametrize(
    ("ending", "settled", "left"),
    [
        ("commit", False, ("resolved", LATELY)),
        ("rollback", True, ("expired", LONG_AGO)),
    ],
)
def test_settling_a_checkpoint_that_is_being_approved(
    rows: Rows,
    writer: Writer,
    jobs: Jobs,
    checkpoints: PostgresCheckpointStore,
    ending: str,
    settled: bool,
    left: tuple[str, int],
) -> None:
    """A checkpoint is decided once: the second waits, and loses unless the first takes it back."""
    rows.checkpoint("token")
    writer.begin_approval("token")

    settling = in_background(
        rows, jobs, lambda: checkpoints.settle("token", "s", "expired", LONG_AGO)
    )
    settling.waits_for(writer.pid)
    getattr(writer, ending)()

    assert settling.result() is settled
    assert rows.approval("token") == left


def test_settling_a_checkpoint_that_is_given_more_time_still_settles_it(
    rows: Rows, writer: Writer, jobs: Jobs, checkpoints: PostgresCheckpointStore
) -> None:
    rows.checkpoint("token", expires_at=LONG_AGO)
    writer.begin_renewal("token", LATELY)

    settling = in_background(
        rows, jobs, lambda: checkpoints.settle("token", "s", "resolved", LATELY)
    )
    settling.waits_for(writer.pid)
    writer.commit()

    assert settling.result() is True
    assert rows.approval("token") == ("resolved", LATELY)


def test_of_many_who_settle_one_checkpoint_one_wins(
    rows: Rows, jobs: Jobs, checkpoints: PostgresCheckpointStore
) -> None:
    rows.checkpoint("token")

    def settle(at: int) -> Callable[[], bool]:
        return lambda: checkpoints.settle("token", "s", "resolved", at)

    attempts = [in_background(rows, jobs, settle(at)) for at in range(4)]
    won = [attempt.result() for attempt in attempts]

    assert sorted(won) == [False, False, False, True]
    assert rows.approval("token") == ("resolved", won.index(True))


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_put_of_a_checkpoint_that_is_being_put(
    rows: Rows, writer: Writer, jobs: Jobs, checkpoints: PostgresCheckpointStore, ending: str
) -> None:
    writer.begin_asking("token")

    putting = in_background(
        rows, jobs, lambda: checkpoints.put(Checkpoint("s", "token", "resolved", None, 5))
    )
    putting.waits_for(writer.pid)
    getattr(writer, ending)()

    if ending == "commit":
        with pytest.raises(AlreadyExists):
            putting.result()
        assert rows.approval("token") == ("pending", None)
    else:
        putting.result()
        assert rows.approval("token") == ("resolved", 5)


def test_settling_a_held_checkpoint_says_so_and_changes_nothing(
    rows: Rows, writer: Writer, hasty_jobs: Jobs
) -> None:
    store = PostgresCheckpointStore(hasty_jobs.database)
    rows.checkpoint("token")
    writer.begin_approval("token")

    with pytest.raises(TimedOut):
        store.settle("token", "s", "expired", LATELY)

    writer.rollback()
    assert rows.approval("token") == ("pending", None)


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_delete_of_a_transcript_that_is_being_written(
    rows: Rows, writer: Writer, jobs: Jobs, ending: str
) -> None:
    """The writer's words are newer than the time named: committed, they keep the transcript."""
    store = PostgresSessionStore(jobs.database)
    rows.session("talk")
    writer.begin_transcript("talk")

    deleting = in_background(rows, jobs, lambda: store.delete("talk", "s", LONG_AGO))
    deleting.waits_for(writer.pid)
    getattr(writer, ending)()

    assert deleting.result() is (ending == "rollback")
    assert rows.transcripts() == (["talk"] if ending == "commit" else [])


def test_put_of_a_transcript_that_is_being_written_comes_after_it(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """A transcript is no compare-and-set: the last one written stays."""
    store = PostgresSessionStore(jobs.database)
    rows.session("talk")
    writer.begin_transcript("talk")

    putting = in_background(
        rows, jobs, lambda: store.put(Session("s", "talk", LATELY + 1, {"turns": 3}))
    )
    putting.waits_for(writer.pid)
    writer.commit()
    putting.result()

    assert store.get("talk", "s") == Session("s", "talk", LATELY + 1, {"turns": 3})
