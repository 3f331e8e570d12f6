"""Who wins when a parked row, its claim or its checkpoint moves while it is being reconciled."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from store.agents import PostgresAgentStore
from store.checkpoints import PostgresCheckpointStore
from tests.race.background import Background
from tests.race.conftest import Crew
from tests.race.jobs import PATIENT, Jobs
from tests.race.rows import LATELY, NOW, Rows
from tests.race.writer import Writer

JOB = "reconcile_parked"
EXPIRED = f"{JOB}/failed/checkpoint_expired"
MISSING = f"{JOB}/failed/checkpoint_missing"
STRANDED = f"{JOB}/failed/stranded"
ROLLED_BACK = f"{JOB}/rolled_back/stale_claim"
LOST_RACE = f"{JOB}/lost_race"
SKIPPED = f"{JOB}/skipped/checkpoint_locked"


def place_every_line(rows: Rows) -> list[str]:
    """One row for every line of the table that does something; gives their handles."""
    rows.checkpoint("expired", status="expired", updated_at=5)
    rows.checkpoint("overdue", expires_at=NOW)
    rows.checkpoint("pending", expires_at=NOW + 1)
    rows.checkpoint("resolved", status="resolved", updated_at=5)
    rows.parked("p-expired", "expired")
    rows.parked("p-overdue", "overdue")
    rows.parked("p-overdue-claimed", "overdue", park_claim_id="claim")
    rows.parked("p-missing", "nowhere")
    rows.parked("p-tokenless", None)
    rows.parked("p-stranded", "resolved")
    rows.parked("p-stranded-claimed", "resolved", park_claim_id="claim")
    rows.parked("p-reserved", "pending", park_claim_id="claim")
    rows.claimed("r-pending", "pending")
    rows.claimed("r-expired", "expired")
    rows.claimed("r-overdue", "overdue")
    rows.claimed("r-missing", "nowhere")
    return rows.handles()


def test_every_line_is_acted_on_when_nobody_interferes(rows: Rows, jobs: Jobs) -> None:
    """What the following tests take away from."""
    handles = place_every_line(rows)

    assert jobs.reconcile() == {EXPIRED: 5, MISSING: 3, STRANDED: 2, ROLLED_BACK: 2}

    rolled_back = {"p-reserved", "r-pending"}
    assert {h: rows.brief(h) for h in handles} == {
        h: ("parked" if h in rolled_back else "failed", 2) for h in handles
    }
    assert rows.approval("overdue") == ("expired", NOW)
    assert {rows.row(h)["writer_epoch"] for h in rolled_back} == {4}
    assert jobs.reconcile() == {}


Row = dict[str, Any]


def touch(writer: Writer, row: Row) -> None:
    writer.begin_touch(row["handle"])


def settle(writer: Writer, row: Row) -> None:
    writer.begin_settling(row["handle"])


def park_anew(writer: Writer, row: Row) -> None:
    writer.begin_parking(row["handle"], "another")


def claim_anew(writer: Writer, row: Row) -> None:
    writer.begin_touch(row["handle"], park_claim_id="next")


def delete(writer: Writer, row: Row) -> None:
    writer.begin_deletion(row["handle"])


def replace(writer: Writer, row: Row, **other: Any) -> None:
    """The successor has the revision that was judged, and all else but what is given here."""
    writer.begin_deletion(row["handle"])
    same = ("status", "parked_checkpoint_token", "park_claim_id", "updated_at")
    writer.begin_putting(row["handle"], **{name: row[name] for name in same} | other)


MOVES: dict[str, Callable[[Writer, Row], None]] = {
    "rewritten": touch,
    "settled": settle,
    "parked anew": park_anew,
    "claimed anew": claim_anew,
    "deleted": delete,
    "replaced, waiting for another": partial(replace, parked_checkpoint_token="another"),
    "replaced, claimed by another": partial(replace, park_claim_id="next"),
    "replaced, ended": partial(replace, status="completed"),
}


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("moment", ["candidates", "write"])
def test_rows_that_move_between_judgement_and_write_are_lost_races(
    rows: Rows,
    writer: Writer,
    jobs: Jobs,
    moment: str,
    move: str,
) -> None:
    """Every line of the table, each committed after its row was judged: none is acted on."""
    handles = place_every_line(rows)
    rows.checkpoint("another")
    parked = [handle for handle in handles if handle.startswith("p")]
    before: dict[str, object] = {}

    def moves(chosen: list[str]) -> None:
        for handle in chosen:
            MOVES[move](writer, rows.row(handle))
        writer.commit()
        before.update({handle: rows.row(handle) for handle in chosen if move != "deleted"})

    if moment == "candidates":
        jobs.database.after("reconcile_parked_candidates", lambda: moves(parked))
        claims = [handle for handle in handles if handle not in parked]
        jobs.database.after("reconcile_claims_candidates", lambda: moves(claims))
        lost = len(handles)
    else:
        jobs.database.before("reconcile_parked", lambda: moves(parked))
        lost = len(parked)

    counted = jobs.reconcile()

    assert counted[LOST_RACE] == lost
    assert sum(counted.values()) == len(handles)
    assert {handle: rows.row(handle) for handle in before} == before
    assert len(rows.handles()) == len(handles) - (lost if move == "deleted" else 0)


def test_row_parked_anew_on_a_pending_checkpoint_keeps_waiting_for_it(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """The classic: judged by the dead T1, waiting for the living T2 when the write comes."""
    rows.checkpoint("T1", status="expired", updated_at=5)
    rows.checkpoint("T2")
    rows.parked("a", "T1")

    def parks_anew() -> None:
        writer.begin_parking("a", "T2")
        writer.commit()

    jobs.database.before("reconcile_parked", parks_anew)

    assert jobs.reconcile(lease_ms=None) == {LOST_RACE: 1}
    assert rows.brief("a") == ("parked", 2)
    assert rows.row("a")["parked_checkpoint_token"] == "T2"
    assert jobs.reconcile(lease_ms=None) == {}


def test_claim_finalized_between_judgement_and_rollback_is_no_longer_a_claim(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    rows.checkpoint("token")
    rows.claimed("a", "token")

    def finalizes() -> None:
        writer.begin_finalizing("a")
        writer.commit()

    jobs.database.before("reconcile_parked", finalizes)

    assert jobs.reconcile() == {LOST_RACE: 1}
    row = rows.row("a")
    assert (row["status"], row["writer_id"], row["writer_epoch"]) == ("running", "resumer", 4)


def test_approval_between_judgement_and_lock_stops_the_rollback(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """Consumed a moment ago: the resume is in flight, for the running and the reserved row."""
    rows.checkpoint("token")
    rows.claimed("a", "token")
    rows.parked("b", "token", park_claim_id="claim")

    def approves() -> None:
        writer.begin_approval("token")
        writer.commit()

    jobs.database.after("reconcile_parked_candidates", approves)

    assert jobs.reconcile() == {LOST_RACE: 1}
    assert rows.brief("a") == ("running", 1)
    assert rows.brief("b") == ("parked", 1)
    assert rows.row("b")["park_claim_id"] == "claim"


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_approval_in_flight_is_passed_over_with_its_rows(
    rows: Rows, writer: Writer, jobs: Jobs, ending: str
) -> None:
    """Nobody waits. Given, the claims stay; taken back, the next run rolls them back."""
    rows.checkpoint("token")
    rows.claimed("a", "token")
    rows.parked("b", "token", park_claim_id="claim")
    rows.parked("c", "nowhere")
    writer.begin_approval("token")

    assert jobs.reconcile() == {SKIPPED: 2, MISSING: 1}
    assert (rows.brief("a"), rows.brief("b")) == (("running", 1), ("parked", 1))

    getattr(writer, ending)()

    assert jobs.reconcile() == ({} if ending == "commit" else {ROLLED_BACK: 2})
    assert rows.approval("token")[0] == ("resolved" if ending == "commit" else "pending")


def test_approval_in_flight_of_a_checkpoint_past_its_time_is_not_expired_over(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    rows.checkpoint("token", expires_at=NOW)
    rows.parked("a", "token")
    writer.begin_approval("token")

    assert jobs.reconcile(lease_ms=None) == {SKIPPED: 1}
    writer.commit()

    assert rows.approval("token") == ("resolved", LATELY)
    assert jobs.reconcile(lease_ms=None) == {}
    assert rows.brief("a") == ("parked", 1)


def test_checkpoint_given_more_time_between_judgement_and_lock_does_not_expire(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """The parked row waits on; the claim past its lease is judged again, as one to roll back."""
    rows.checkpoint("for p", expires_at=NOW)
    rows.checkpoint("for r", expires_at=NOW)
    rows.parked("p", "for p")
    rows.claimed("r", "for r")

    def renews(token: str) -> None:
        writer.begin_renewal(token, NOW + 1)
        writer.commit()

    jobs.database.after("reconcile_parked_candidates", lambda: renews("for p"))
    jobs.database.after("reconcile_claims_candidates", lambda: renews("for r"))

    assert jobs.reconcile() == {LOST_RACE: 1, ROLLED_BACK: 1}
    assert rows.approval("for p") == rows.approval("for r") == ("pending", None)
    assert rows.brief("p") == ("parked", 1)
    assert rows.brief("r") == ("parked", 2)


def test_checkpoint_stays_expired_though_its_row_moved_on(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """The checkpoint is the master: its verdict does not hang on the row's."""
    rows.checkpoint("token", expires_at=NOW)
    rows.parked("a", "token")

    def settles() -> None:
        writer.begin_settling("a")
        writer.commit()

    jobs.database.before("reconcile_parked", settles)

    assert jobs.reconcile(lease_ms=None) == {LOST_RACE: 1}
    assert rows.approval("token") == ("expired", NOW)
    assert rows.brief("a") == ("completed", 2)


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_rows_in_their_writers_hand_are_passed_over(
    rows: Rows, writer: Writer, jobs: Jobs, ending: str
) -> None:
    """Every line of the table, all rows held: nobody waits, and nothing is acted on."""
    handles = place_every_line(rows)
    for handle in handles:
        writer.begin_touch(handle, updated_at=LATELY)

    assert jobs.reconcile() == {LOST_RACE: len(handles)}
    assert {rows.row(handle)["rev"] for handle in handles} == {1}

    getattr(writer, ending)()

    # The times of the rows are new, so that only dead checkpoints are asked, of parked rows.
    renewed = {EXPIRED: 3, MISSING: 2}
    everything = {EXPIRED: 5, MISSING: 3, STRANDED: 2, ROLLED_BACK: 2}
    assert jobs.reconcile() == (renewed if ending == "commit" else everything)


def test_missing_checkpoint_made_between_judgement_and_write_saves_its_row(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    rows.parked("a", "late")

    def asks() -> None:
        writer.begin_asking("late")
        writer.commit()

    jobs.database.before("reconcile_parked", asks)

    assert jobs.reconcile() == {LOST_RACE: 1}
    assert rows.brief("a") == ("parked", 1)


def test_checkpoint_withdrawn_between_judgement_and_lock_fails_its_row_as_missing(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """Judged as one to roll back, written as what it has become."""
    rows.checkpoint("token")
    rows.parked("a", "token", park_claim_id="claim")

    def withdraws() -> None:
        writer.begin_withdrawal("token")
        writer.commit()

    jobs.database.before("lock_checkpoints", withdraws)

    assert jobs.reconcile() == {MISSING: 1}
    assert rows.brief("a") == ("failed", 2)


def test_checkpoint_withdrawn_between_lock_and_write_has_its_row_counted_once(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """Held when the locks are taken and gone when the row is written: one row, one count."""
    rows.checkpoint("token", expires_at=NOW)
    rows.parked("a", "token")
    writer.begin_withdrawal("token")
    jobs.database.before("reconcile_parked", writer.commit)

    counted = jobs.reconcile()

    assert counted == ({MISSING: 1} if rows.brief("a") == ("failed", 2) else {SKIPPED: 1})


def test_undated_checkpoint_that_is_dated_before_the_write_has_its_row_counted_once(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """Left alone when it was judged, stranded when it is written: one row, one count."""
    rows.checkpoint("token", status="resolved")
    rows.parked("a", "token")
    rows.parked("b", "nowhere")

    def dates_one_and_moves_the_other() -> None:
        writer.begin_dating("token", at=5)
        writer.begin_settling("b")
        writer.commit()

    jobs.database.before("lock_checkpoints", dates_one_and_moves_the_other)

    counted = jobs.reconcile()

    became = STRANDED if rows.brief("a") == ("failed", 2) else f"{JOB}/skipped/undated_checkpoint"
    assert counted == {became: 1, LOST_RACE: 1}


def test_finalizing_that_waits_for_a_rollback_in_flight_loses_to_it(
    rows: Rows, jobs: Jobs, crew: Crew
) -> None:
    """The abandoned lane comes back a moment too late: its claim and its epoch are gone."""
    rows.checkpoint("token")
    rows.claimed("a", "token")
    resuming = crew.jobs(PATIENT, "resuming writer").database
    store = PostgresAgentStore(resuming)
    own = store.get("a", "s")
    assert own is not None
    own.park_claim_id = own.parked_checkpoint_token = None
    finalizings: list[Background[bool]] = []

    def finalizing_begins() -> None:
        finalizing = Background(
            lambda: store.update_if("a", "s", own, {"rev": own.rev, "park_claim_id": "claim"}),
            rows,
            resuming.application,
        )
        finalizing.waits_for(jobs.database.backend_pid)
        finalizings.append(finalizing)

    jobs.database.after("reconcile_parked", finalizing_begins)

    assert jobs.reconcile() == {ROLLED_BACK: 1}
    assert finalizings[0].result() is False
    row = rows.row("a")
    assert (row["status"], row["rev"], row["writer_epoch"]) == ("parked", 2, 4)
    assert row["parked_checkpoint_token"] == "token"


@pytest.mark.parametrize(
    ("expires_at", "counted", "wins", "left"),
    [
        (None, {ROLLED_BACK: 1}, True, ("resolved", LATELY)),
        (NOW, {EXPIRED: 1}, False, ("expired", NOW)),
    ],
    ids=["after a rollback", "after an expiry"],
)
def test_approval_that_waits_for_a_reconciliation_in_flight(
    rows: Rows,
    jobs: Jobs,
    crew: Crew,
    expires_at: int | None,
    counted: dict[str, int],
    wins: bool,
    left: tuple[str, int],
) -> None:
    """The person's answer waits for the lock, and counts only if it did not come too late."""
    rows.checkpoint("token", expires_at=expires_at)
    rows.parked("a", "token", park_claim_id="claim")
    approving = crew.jobs(PATIENT, "approver").database
    store = PostgresCheckpointStore(approving)
    approvals: list[Background[bool]] = []

    def approval_begins() -> None:
        approval = Background(
            lambda: store.settle("token", "s", "resolved", LATELY), rows, approving.application
        )
        approval.waits_for(jobs.database.backend_pid)
        approvals.append(approval)

    jobs.database.after("reconcile_parked", approval_begins)

    assert jobs.reconcile() == counted
    assert approvals[0].result() is wins
    assert rows.approval("token") == left
    assert rows.row("a")["status"] == ("parked" if wins else "failed")
