"""What commits after a statement took its snapshot and before it locked the row.

A job that passes over locked rows never waits for a writer, so these tests stop it elsewhere: it
works through a view whose condition stands still at the row (or checkpoint) named 'gate' while the
gate is closed. Everything behind it is then read as the snapshot has it, and locked only later.
A row named 'slow' stops it too, but not before it is being written.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from store.database import Database, Limits
from tests.conftest import Servers
from tests.ledgers import VERSIONS
from tests.race.background import WITHIN_SECONDS, Background
from tests.race.conftest import Crew
from tests.race.jobs import Jobs
from tests.race.rows import LATELY, LONG_AGO, NOW, Rows
from tests.race.writer import Writer

AGE = 60_000
_LOCK = 84_610
_GATED = f"""
    drop schema if exists gated cascade;
    create schema gated;
    create function gated.passes(key text) returns boolean language plpgsql as $$
    begin
        if key = 'gate' and current_setting('application_name') = 'job' then
            while not pg_try_advisory_lock_shared({_LOCK}) loop
                perform pg_sleep(0.002);
            end loop;
            perform pg_advisory_unlock_shared({_LOCK});
        end if;
        return true;
    end $$;
    create function gated.stands() returns trigger language plpgsql as $$
    begin
        perform gated.passes('gate');
        return coalesce(new, old);
    end $$;
    create trigger stands before update or delete on public.background_agents
        for each row when (old.handle = 'slow') execute function gated.stands();
    create view gated.background_agents as
        select * from public.background_agents where gated.passes(handle);
    create view gated.checkpoints as
        select * from public.checkpoints where gated.passes(token);
"""


class Gate:
    """Closed, it stops whatever job reads the row named 'gate'; test and writers walk past."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(_GATED.encode())

    def close_gate(self) -> None:
        self._connection.execute(f"select pg_advisory_lock({_LOCK})")

    def open_gate(self) -> None:
        self._connection.execute(f"select pg_advisory_unlock({_LOCK})")

    def close(self) -> None:
        self._connection.execute("select pg_advisory_unlock_all()")
        self._connection.execute("drop schema gated cascade")
        self._connection.close()


@pytest.fixture(params=VERSIONS, ids=lambda v: f"pg{v}")
def place(servers: Servers, request: pytest.FixtureRequest) -> Iterator[tuple[str, Gate]]:
    """The URL of a plain ledger, and the gate that was put in front of it."""
    url, _ = servers.ledger(request.param, "plain")
    with closing(Gate(url)) as gate:
        yield url, gate


@pytest.fixture
def ledger(place: tuple[str, Gate]) -> Iterator[tuple[str, Database]]:
    """The ledger as it is seen through the gate."""
    with Database(place[0], "gated") as database:
        yield place[0], database


@pytest.fixture
def gate(place: tuple[str, Gate]) -> Gate:
    return place[1]


def during(
    gate: Gate, running: Background[dict[str, int]], act: Callable[[], None]
) -> dict[str, int]:
    """Let the job read up to the gate, do this, and let it go on."""
    running.pauses()
    act()
    gate.open_gate()
    return running.result()


def test_revival_after_the_snapshot_of_a_delete(
    rows: Rows, writer: Writer, jobs: Jobs, gate: Gate
) -> None:
    rows.finished("gate", "h", "i")

    def revives() -> None:
        writer.begin_revival("h")
        writer.commit()

    gate.close_gate()
    counted = during(gate, jobs.start(jobs.reap, max_age_ms=AGE), revives)

    assert counted == {"reap/max_age": 2, "reap/lost_race": 1}
    assert rows.handles() == ["h"]
    assert rows.brief("h") == ("running", 2)
    assert [handle for handle, _ in rows.queued()] == ["gate", "i"]


@pytest.mark.parametrize("change", ["revived", "ended anew", "replaced", "rewritten"])
def test_change_after_the_snapshot_of_a_delete_past_locks(
    rows: Rows, writer: Writer, other_writer: Writer, hasty_jobs: Jobs, gate: Gate, change: str
) -> None:
    """Not even a write that leaves the row due is deleted over: the revision has moved."""
    rows.finished("gate", "h", "i", "held")

    def changes() -> None:
        if change == "replaced":
            writer.begin_deletion("h")
            aged: dict[str, Any] = {"settled_at": LONG_AGO, "updated_at": LONG_AGO}
            writer.begin_putting("h", status="failed", **aged)
        elif change == "rewritten":
            writer.begin_touch("h", session_id="bound at last")
        else:
            writer.begin_revival("h")
            if change == "ended anew":
                writer.begin_settling("h")
        writer.commit()

    other_writer.begin_touch("held")
    hasty_jobs.database.before("reap_past_locks", gate.close_gate)
    counted = during(gate, hasty_jobs.start(hasty_jobs.reap, max_age_ms=AGE), changes)

    assert counted == {"reap/max_age": 2, "reap/lost_race": 2}
    assert rows.handles() == ["h", "held"]
    assert [handle for handle, _ in rows.queued()] == ["gate", "i"]


@pytest.mark.parametrize("change", ["revived", "settled", "rewritten"])
def test_change_after_the_snapshot_of_a_delete_of_unsettled_rows(
    rows: Rows, writer: Writer, jobs: Jobs, gate: Gate, change: str
) -> None:
    for handle in ("gate", "h", "i"):
        rows.agent(handle, status="killed", session_id=f"transcript of {handle}")

    def changes() -> None:
        if change == "revived":
            writer.begin_revival("h")
        elif change == "settled":
            writer.begin_touch("h", settled_at=LATELY)
        else:
            writer.begin_touch("h")
        writer.commit()

    gate.close_gate()
    counted = during(gate, jobs.start(jobs.reap, max_age_ms=AGE), changes)

    assert counted == {"reap/max_age": 2, "reap/lost_race": 1}
    assert rows.handles() == ["h"]
    assert [handle for handle, _ in rows.queued()] == ["gate", "i"]


def test_heartbeat_after_the_snapshot_of_a_flip(
    rows: Rows, writer: Writer, jobs: Jobs, gate: Gate
) -> None:
    rows.running("gate", "h", "i")

    def renews() -> None:
        writer.begin_heartbeat("h")
        writer.commit()

    gate.close_gate()
    counted = during(gate, jobs.start(jobs.flip), renews)

    assert counted == {"flip_stale_running/flipped": 2, "flip_stale_running/lost_race": 1}
    assert rows.brief("h") == ("running", 2)
    assert rows.row("h")["updated_at"] == LATELY


@pytest.mark.parametrize("change", ["renewed", "settled", "claimed", "rewritten"])
def test_change_after_the_snapshot_of_a_flip_past_locks(
    rows: Rows, writer: Writer, other_writer: Writer, hasty_jobs: Jobs, gate: Gate, change: str
) -> None:
    rows.running("gate", "h", "held", "i")
    rows.checkpoint("token")

    def changes() -> None:
        if change == "renewed":
            writer.begin_heartbeat("h")
        elif change == "settled":
            writer.begin_settling("h")
        elif change == "rewritten":
            writer.begin_touch("h")
        else:
            writer.begin_touch("h", parked_checkpoint_token="token", park_claim_id="claim")
        writer.commit()

    other_writer.begin_heartbeat("held")
    hasty_jobs.database.before("flip_stale_running_past_locks", gate.close_gate)
    counted = during(gate, hasty_jobs.start(hasty_jobs.flip), changes)

    assert counted == {"flip_stale_running/flipped": 2, "flip_stale_running/lost_race": 2}
    assert rows.brief("h") == ("completed" if change == "settled" else "running", 2)
    assert [rows.brief(handle)[0] for handle in ("gate", "i")] == ["failed", "failed"]


@pytest.mark.parametrize("change", ["renewed", "finalized", "claimed anew"])
def test_change_after_the_snapshot_of_a_claimed_flip(
    rows: Rows, writer: Writer, jobs: Jobs, gate: Gate, change: str
) -> None:
    rows.checkpoint("token", status="expired", updated_at=5)
    for handle in ("gate", "h", "i"):
        rows.claimed(handle, "token")

    def changes() -> None:
        if change == "renewed":
            writer.begin_heartbeat("h")
        elif change == "finalized":
            writer.begin_finalizing("h")
        else:
            writer.begin_touch("h", park_claim_id="next")
        writer.commit()

    jobs.database.before("flip_judged", gate.close_gate)
    counted = during(gate, jobs.start(jobs.flip), changes)

    assert counted == {"flip_stale_running/flipped": 2, "flip_stale_running/lost_race": 1}
    assert rows.brief("h") == ("running", 2)


@pytest.mark.parametrize("change", ["parked anew", "settled", "resumed", "deleted", "replaced"])
def test_change_after_the_snapshot_of_a_reconciliation(
    rows: Rows, writer: Writer, jobs: Jobs, gate: Gate, change: str
) -> None:
    """The judged row is read, then moves, and only then is locked: it must not be written."""
    rows.checkpoint("token", expires_at=NOW)
    rows.checkpoint("another")
    for handle in ("gate", "h", "i"):
        rows.parked(handle, "token")

    def changes() -> None:
        if change == "parked anew":
            writer.begin_parking("h", "another")
        elif change == "settled":
            writer.begin_settling("h")
        elif change == "resumed":
            writer.begin_resuming("h")
        else:
            writer.begin_deletion("h")
            if change == "replaced":
                writer.begin_putting("h", status="parked", parked_checkpoint_token="token")
        writer.commit()

    jobs.database.before("reconcile_parked", gate.close_gate)
    counted = during(gate, jobs.start(jobs.reconcile, lease_ms=None), changes)

    assert counted == {
        "reconcile_parked/failed/checkpoint_expired": 2,
        "reconcile_parked/lost_race": 1,
    }
    left = {"parked anew": "parked", "settled": "completed", "resumed": "running"}
    if change in left:
        assert rows.brief("h") == (left[change], 2)
    elif change == "replaced":
        assert rows.brief("h") == ("parked", 1)
    else:
        assert rows.handles() == ["gate", "i"]
    assert rows.approval("token") == ("expired", NOW)


@pytest.mark.parametrize("claimed", ["running", "parked"])
def test_approval_after_the_snapshot_that_was_to_lock_its_checkpoint(
    rows: Rows, writer: Writer, jobs: Jobs, gate: Gate, claimed: str
) -> None:
    """The lock is had on the newest version, and it is that one which is judged."""
    for token in ("gate", "token"):
        rows.checkpoint(token)
        place = rows.claimed if claimed == "running" else rows.parked
        place(f"row of {token}", token, park_claim_id="claim")

    def approves() -> None:
        writer.begin_approval("token")
        writer.commit()

    jobs.database.before("lock_checkpoints", gate.close_gate)
    counted = during(gate, jobs.start(jobs.reconcile), approves)

    assert counted == {
        "reconcile_parked/rolled_back/stale_claim": 1,
        "reconcile_parked/lost_race": 1,
    }
    assert rows.brief("row of token") == (claimed, 1)
    assert rows.row("row of token")["park_claim_id"] == "claim"
    assert rows.approval("token") == ("resolved", LATELY)


@pytest.mark.parametrize("waited_ms", [0, 650])
@pytest.mark.parametrize("job", ["reap", "flip"])
def test_writer_whose_locks_cross_a_sweepers_is_never_the_one_to_give_way(
    rows: Rows, writer: Writer, crew: Crew, gate: Gate, job: str, waited_ms: int
) -> None:
    """The writer holds 'z' and wants 'a'; the sweeper holds 'a' and comes to want 'z'.

    Postgres ends the one that finds the deadlock, a second (deadlock_timeout) after it began to
    wait. A batch that comes to 'z' late must give up before the writer's second is over, not its
    own. The limits are the worker's by default.
    """
    jobs = crew.jobs(Limits())
    if job == "reap":
        rows.finished("a", "slow", "z")
        done = "reap/max_age"
        begin, run = writer.begin_revival, lambda: jobs.reap(max_age_ms=AGE)
    else:
        rows.running("a", "slow", "z")
        done = "flip_stale_running/flipped"
        begin, run = writer.begin_heartbeat, jobs.flip
    begin("z")
    gate.close_gate()
    # WHY: the sweeper's second attempt could otherwise be quicker than the writer's waking up.
    writer_is_through = threading.Event()
    past_locks = {"reap": "reap_past_locks", "flip": "flip_stale_running_past_locks"}[job]
    jobs.database.before(past_locks, lambda: writer_is_through.wait(WITHIN_SECONDS))

    sweeping = Background(run, rows, jobs.database.application)
    sweeper = sweeping.pauses()
    writing = writer.in_background(lambda: begin("a"), rows)
    writing.waited(waited_ms, sweeper)
    gate.open_gate()
    # It raises if the writer was chosen as the deadlock's victim.
    writing.result()
    writer_is_through.set()
    writer.commit()

    assert sweeping.result()[done] == 1
    assert [rows.brief(handle) for handle in ("a", "z")] == [("running", 2)] * 2
