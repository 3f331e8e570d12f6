"""A verdict from silence or absence counts only once it was seen for a while, by one clock."""

from dataclasses import replace
from hashlib import sha256

import pytest

from store.guards import UNGUARDED
from store.sightings import sight_quiet
from store.standstill import standing
from tests.race.conftest import Crew
from tests.race.jobs import PATIENT, Jobs
from tests.race.rows import LATELY, NOW, Rows
from tests.race.writer import Writer

FLIPPED = "flip_stale_running/flipped"
UNSEEN = "flip_stale_running/skipped/sighting"
LOST_RACE = "flip_stale_running/lost_race"
LOCKED = "flip_stale_running/skipped/checkpoint_locked"
MISSING = "reconcile_parked/failed/checkpoint_missing"
EXPIRED = "reconcile_parked/failed/checkpoint_expired"
STRANDED = "reconcile_parked/failed/stranded"
ROLLED_BACK = "reconcile_parked/rolled_back/stale_claim"
WAITS = "reconcile_parked/skipped/sighting"
SECOND = 1_000
MINUTE = 60 * SECOND
# Nothing but sightings, of a heartbeat of 60 s.
SIGHTED = replace(UNGUARDED, sightings=True)


@pytest.mark.parametrize(("seconds", "goes"), [(119, False), (120, True), (121, True)])
@pytest.mark.parametrize("kind", ["unclaimed", "claimed"])
def test_silent_row_is_flipped_once_it_was_seen_for_two_heartbeats(
    rows: Rows, jobs: Jobs, kind: str, seconds: int, goes: bool
) -> None:
    """However long it has been silent: what counts is since when that was seen."""
    if kind == "claimed":
        rows.claimed("a", "nowhere")
    else:
        rows.running("a")

    assert jobs.flip(guards=SIGHTED) == {UNSEEN: 1}
    assert rows.brief("a") == ("running", 1)

    later = jobs.flip(now=NOW + seconds * SECOND, guards=SIGHTED)

    assert later == ({FLIPPED: 1} if goes else {UNSEEN: 1})
    assert rows.brief("a") == (("failed", 2) if goes else ("running", 1))


def test_heartbeat_begins_the_sighting_anew(rows: Rows, writer: Writer, jobs: Jobs) -> None:
    """The writer's clock is far behind, so that the row looks silent right after its renewal."""
    rows.running("a")
    assert jobs.flip(guards=SIGHTED) == {UNSEEN: 1}

    writer.begin_touch("a", updated_at=20_000)
    writer.commit()

    assert jobs.flip(now=NOW + 121 * SECOND, guards=SIGHTED) == {UNSEEN: 1}
    assert jobs.flip(now=NOW + 240 * SECOND, guards=SIGHTED) == {UNSEEN: 1}
    assert jobs.flip(now=NOW + 241 * SECOND, guards=SIGHTED) == {FLIPPED: 1}


def test_row_put_anew_at_the_revision_that_was_seen_is_another_row(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    rows.running("a")
    assert jobs.flip(guards=SIGHTED) == {UNSEEN: 1}

    writer.begin_deletion("a")
    writer.begin_putting("a", updated_at=20_000)
    writer.commit()

    assert rows.brief("a") == ("running", 1)
    assert jobs.flip(now=NOW + 121 * SECOND, guards=SIGHTED) == {UNSEEN: 1}


def test_writers_with_a_clock_behind_are_never_flipped_and_the_dead_beside_them_are(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """Twenty minutes behind at a stale age of fifteen, renewing every minute for half an hour."""
    alive = [f"alive {n}" for n in range(3)]
    now = NOW + 60 * MINUTE
    for handle in alive:
        rows.running(handle, writer_id="behind", updated_at=now - 20 * MINUTE)
    rows.running("dead", writer_id="gone", updated_at=now - 20 * MINUTE)
    rows.checkpoint("token", expires_at=1)
    rows.parked("waits", "token", writer_id="behind")
    rows.checkpoint("other", expires_at=1)
    rows.parked("waits in vain", "other", writer_id="gone")
    jobs.flip(15 * MINUTE, now=now, guards=SIGHTED)

    done: list[dict[str, int]] = []
    for beat in range(1, 31):
        at = now + beat * MINUTE
        for handle in alive:
            writer.begin_touch(handle, updated_at=at - 20 * MINUTE)
            writer.commit()
        done.append(jobs.flip(15 * MINUTE, now=at + SECOND, guards=SIGHTED))
        # The writer is seen to live, so that its parked rows wait for as long as it says.
        jobs.reconcile(
            None, now=at + SECOND, guards=replace(SIGHTED, live_writer_sighting_ms=1800 * SECOND)
        )

    assert [rows.brief(handle) for handle in alive] == [("running", 31)] * 3
    assert sum(counts.get(FLIPPED, 0) for counts in done) == 1
    assert rows.brief("dead") == ("failed", 2)
    assert rows.brief("waits") == ("parked", 1)
    assert rows.approval("token") == ("pending", None)
    assert rows.brief("waits in vain") == ("failed", 2)


def test_sighting_stays_where_its_worker_does_not(rows: Rows, crew: Crew) -> None:
    """Another worker goes on from what the one before it saw."""
    rows.running("a")
    assert crew.jobs(PATIENT, "first").flip(guards=SIGHTED) == {UNSEEN: 1}

    assert crew.jobs(PATIENT, "second").flip(now=NOW + 2 * MINUTE, guards=SIGHTED) == {FLIPPED: 1}


def test_heartbeat_between_the_judgement_and_the_flip_saves_the_row(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    """Written by compare-and-set: what moved since it was judged is a lost race."""
    rows.running("a", "b")
    jobs.flip(guards=SIGHTED)

    def renews() -> None:
        writer.begin_touch("a")
        writer.commit()

    jobs.database.before("flip_judged", renews)

    assert jobs.flip(now=NOW + 2 * MINUTE, guards=SIGHTED) == {FLIPPED: 1, LOST_RACE: 1}
    assert rows.brief("a") == ("running", 2)
    assert rows.brief("b") == ("failed", 2)


def test_row_in_its_writers_hand_is_not_waited_for(rows: Rows, writer: Writer, jobs: Jobs) -> None:
    rows.running("a", "b")
    jobs.flip(guards=SIGHTED)
    writer.begin_heartbeat("a")

    assert jobs.flip(now=NOW + 2 * MINUTE, guards=SIGHTED) == {FLIPPED: 1, LOST_RACE: 1}

    writer.commit()
    assert rows.row("a")["updated_at"] == LATELY
    assert rows.brief("a") == ("running", 2)


def test_approval_in_flight_saves_a_claimed_row_that_was_seen_long_enough(
    rows: Rows, writer: Writer, jobs: Jobs
) -> None:
    rows.checkpoint("token", expires_at=NOW)
    rows.claimed("a", "token")
    jobs.flip(guards=SIGHTED)
    writer.begin_renewal("token", NOW + 60 * MINUTE)

    assert jobs.flip(now=NOW + 2 * MINUTE, guards=SIGHTED) == {LOCKED: 1}

    writer.commit()
    assert jobs.flip(now=NOW + 2 * MINUTE, guards=SIGHTED) == {}


@pytest.mark.parametrize("token", ["nowhere", None])
@pytest.mark.parametrize(("seconds", "goes"), [(59, False), (60, True)])
def test_missing_checkpoint_counts_once_it_was_missing_for_a_minute(
    rows: Rows, jobs: Jobs, token: str | None, seconds: int, goes: bool
) -> None:
    rows.parked("a", token)
    assert jobs.reconcile(guards=SIGHTED) == {WAITS: 1}

    later = jobs.reconcile(now=NOW + seconds * SECOND, guards=SIGHTED)

    assert later == ({MISSING: 1} if goes else {WAITS: 1})
    assert rows.brief("a") == (("failed", 2) if goes else ("parked", 1))


def test_what_a_dead_writers_checkpoint_says_is_done_at_once(rows: Rows, jobs: Jobs) -> None:
    rows.checkpoint("expired", status="expired")
    rows.checkpoint("used", status="resolved", updated_at=1)
    rows.checkpoint("open")
    rows.parked("a", "expired")
    rows.parked("b", "used")
    rows.claimed("c", "open")

    assert jobs.reconcile(guards=SIGHTED) == {EXPIRED: 1, STRANDED: 1, ROLLED_BACK: 1}


@pytest.mark.parametrize(("minutes", "goes"), [(9, False), (10, True)])
def test_rows_of_a_live_writer_wait_for_ten_minutes(
    rows: Rows, writer: Writer, jobs: Jobs, minutes: int, goes: bool
) -> None:
    """It renews a row of another scope; its checkpoints stay as they are as long as its rows."""
    rows.checkpoint("late", expires_at=NOW)
    rows.checkpoint("used", status="resolved", updated_at=1)
    rows.checkpoint("open")
    rows.parked("a", "late")
    rows.parked("b", "used")
    rows.claimed("c", "open")
    rows.parked("d", "nowhere")
    rows.running("elsewhere", scope="t", updated_at=NOW - 119 * SECOND)
    assert jobs.reconcile(guards=SIGHTED) == {WAITS: 4}
    assert rows.approval("late") == ("pending", None)

    for at in (NOW + 5 * MINUTE, NOW + minutes * MINUTE):
        writer.begin_touch("elsewhere", "t", updated_at=at)
        writer.commit()
        later = jobs.reconcile(now=at, guards=SIGHTED)

    acted = {EXPIRED: 1, STRANDED: 1, ROLLED_BACK: 1, MISSING: 1}
    assert later == (acted if goes else {WAITS: 4})
    assert rows.approval("late") == (("expired", at) if goes else ("pending", None))


def test_writer_that_has_fallen_silent_protects_its_rows_no_longer(rows: Rows, jobs: Jobs) -> None:
    rows.checkpoint("late", status="expired")
    rows.parked("a", "late")
    rows.running("b", updated_at=NOW - 119 * SECOND)
    assert jobs.reconcile(guards=SIGHTED) == {WAITS: 1}

    assert jobs.reconcile(now=NOW + 2 * SECOND, guards=SIGHTED) == {EXPIRED: 1}


def test_row_parked_anew_is_seen_anew(rows: Rows, writer: Writer, jobs: Jobs) -> None:
    rows.parked("a", "nowhere")
    assert jobs.reconcile(guards=SIGHTED) == {WAITS: 1}

    writer.begin_parking("a", "not there yet")
    writer.commit()

    assert jobs.reconcile(now=NOW + MINUTE, guards=SIGHTED) == {WAITS: 1}
    assert rows.brief("a") == ("parked", 2)


def test_clock_set_back_begins_a_sighting_anew(rows: Rows, jobs: Jobs) -> None:
    """It must not wait until the time from which it came is reached again."""
    rows.running("a")
    assert jobs.flip(now=NOW + 60 * MINUTE, guards=SIGHTED) == {UNSEEN: 1}

    assert jobs.flip(guards=SIGHTED) == {UNSEEN: 1}
    assert jobs.flip(now=NOW + 2 * MINUTE, guards=SIGHTED) == {FLIPPED: 1}


@pytest.mark.parametrize(("period", "pause", "goes_on"), [
    (None, 5 * MINUTE, True),
    (None, 5 * MINUTE + 1, False),
    (MINUTE, 5 * MINUTE, True),
    (MINUTE, 5 * MINUTE + 1, False),
    (10 * MINUTE, 30 * MINUTE, True),
    (10 * MINUTE, 30 * MINUTE + 1, False),
])  # fmt: skip
def test_checkpoint_that_was_missing_long_ago_is_missing_anew(
    rows: Rows, jobs: Jobs, period: int | None, pause: int, goes_on: bool
) -> None:
    """It may have been there all the while: three periods of the job or more, nobody looked."""
    if period is not None:
        rows.query(
            "insert into maintenance.schedule (job, last_slot, period_ms)"
            f" values ('reconcile_parked', 0, {period}) returning job"
        )
    rows.parked("a", "nowhere")
    assert jobs.reconcile(guards=SIGHTED) == {WAITS: 1}

    at = NOW + pause
    assert jobs.reconcile(now=at, guards=SIGHTED) == ({MISSING: 1} if goes_on else {WAITS: 1})
    if not goes_on:
        assert jobs.reconcile(now=at + MINUTE - 1, guards=SIGHTED) == {WAITS: 1}
        assert jobs.reconcile(now=at + MINUTE, guards=SIGHTED) == {MISSING: 1}


def test_checkpoint_is_missing_anew_once_a_clock_set_back_returns(rows: Rows, jobs: Jobs) -> None:
    """The hour that it jumps is not an hour in which anybody looked."""
    rows.parked("a", "nowhere")
    assert jobs.reconcile(now=NOW - 60 * MINUTE, guards=SIGHTED) == {WAITS: 1}

    assert jobs.reconcile(guards=SIGHTED) == {WAITS: 1}
    assert jobs.reconcile(now=NOW + MINUTE, guards=SIGHTED) == {MISSING: 1}


# With the handle's one byte, the longest key that the ledger's own index takes; WHY hexadecimal
# digits of hashes: the index would compress anything that repeats.
LONG = "".join(sha256(str(n).encode()).hexdigest() for n in range(40))


@pytest.mark.parametrize("scope", [LONG, "back\\slash", "\\000", "é\n\U0001f600"])
def test_key_of_any_length_and_text_is_seen(
    rows: Rows, jobs: Jobs, writer: Writer, scope: str
) -> None:
    """And is another one than each that resembles it."""
    for key in (scope, f"{scope}a"):
        rows.running("a", scope=key)
        rows.running("ab" if key == scope else "b", scope=key)
        rows.parked("p", None, scope=key, writer_id="gone")
    both = (scope, f"{scope}a")

    assert sight_quiet(jobs.database, NOW, SIGHTED) == 4
    assert jobs.flip(scopes=both, guards=SIGHTED) == {UNSEEN: 4}
    assert jobs.reconcile(scopes=both, guards=SIGHTED) == {WAITS: 2}
    writer.begin_touch("a", scope, updated_at=20_000)
    writer.commit()

    assert jobs.flip(now=NOW + 2 * MINUTE, scopes=both, guards=SIGHTED) == {UNSEEN: 1, FLIPPED: 3}
    assert jobs.reconcile(now=NOW + MINUTE, scopes=both, guards=SIGHTED) == {MISSING: 2}


def test_writer_far_ahead_lives_only_while_it_moves(rows: Rows, jobs: Jobs, writer: Writer) -> None:
    """Its time would let it live for as long as its clock is ahead; ten minutes are believed."""
    far = NOW + 60 * MINUTE
    rows.checkpoint("late", status="expired")
    rows.parked("a", "late", writer_id="ahead")
    rows.running("b", writer_id="ahead", updated_at=far)
    rows.running("c", scope="t", writer_id="gone")

    def reconciled(now: int) -> dict[str, int]:
        with jobs.database.transaction(read_only=True) as tx:
            heard = standing(tx, [], now, SIGHTED)
        sight_quiet(jobs.database, now, SIGHTED)
        return jobs.reconcile(now=now, guards=SIGHTED) | {"heard": heard.renewed}

    sight_quiet(jobs.database, NOW - 3 * MINUTE, SIGHTED)
    writer.begin_touch("b", updated_at=far + MINUTE)
    writer.commit()

    assert reconciled(NOW) == {WAITS: 1, "heard": 0}
    assert reconciled(NOW + 2 * MINUTE - 1) == {WAITS: 1, "heard": 1}
    assert reconciled(NOW + 2 * MINUTE) == {EXPIRED: 1, "heard": 0}


@pytest.mark.parametrize("reason", ["outage", "silence"])
def test_what_is_held_is_counted_and_seen_meanwhile(rows: Rows, jobs: Jobs, reason: str) -> None:
    """Once the hold is over, the time that it took counts for the sighting."""
    rows.running("a", "b")
    rows.running("c", scope="t")
    held = {"s": reason}

    counted = jobs.flip(scopes=("s", "t"), guards=SIGHTED, held=held)

    assert counted == {f"flip_stale_running/skipped/{reason}": 2, UNSEEN: 1}
    assert jobs.flip(now=NOW + 2 * MINUTE, guards=SIGHTED) == {FLIPPED: 2}


def test_claim_is_not_flipped_for_a_checkpoint_that_is_missing_with_all_others(
    rows: Rows, jobs: Jobs
) -> None:
    """A table that is empty as a whole was lost, which says nothing of any one approval."""
    guards = replace(UNGUARDED, plausible_times=True)
    rows.claimed("a", "nowhere")
    rows.running("b")

    first = jobs.flip(guards=guards)

    assert first == {FLIPPED: 1, "flip_stale_running/skipped/no_checkpoints": 1}
    assert rows.brief("a") == ("running", 1)

    rows.checkpoint("of somebody else", scope="t")

    assert jobs.flip(guards=guards) == {FLIPPED: 1}


def test_run_flips_no_more_than_it_may_and_leaves_the_scope_to_a_person(
    rows: Rows, jobs: Jobs
) -> None:
    guards = replace(UNGUARDED, breakers=True, breaker_rows=2)
    rows.running("a", "b", "c")
    rows.running("d", scope="t")
    both = ("s", "t")
    broken = "flip_stale_running/skipped/breaker"

    assert jobs.flip(scopes=both, guards=guards) == {FLIPPED: 3, broken: 1}
    assert jobs.flip(scopes=both, guards=guards) == {broken: 1}
    assert rows.brief("c") == ("running", 1)
    assert jobs.flip(scopes=both, guards=UNGUARDED) == {FLIPPED: 1}


def test_quiet_row_has_been_seen_when_it_becomes_stale(
    rows: Rows, jobs: Jobs, writer: Writer
) -> None:
    """Noted from its second missed heartbeat on, and anew when it was written since."""
    rows.running("dead", "moved", updated_at=NOW - 2 * MINUTE)
    rows.running("heard", updated_at=NOW - 2 * MINUTE + 1)

    assert sight_quiet(jobs.database, NOW, SIGHTED) == 2
    assert sight_quiet(jobs.database, NOW + MINUTE, SIGHTED) == 1
    writer.begin_touch("moved")
    writer.commit()
    assert sight_quiet(jobs.database, NOW + 12 * MINUTE, SIGHTED) == 1

    counted = jobs.flip(5 * MINUTE, now=NOW + 13 * MINUTE, guards=SIGHTED)

    assert counted == {FLIPPED: 2, UNSEEN: 1}
    assert rows.brief("moved") == ("running", 2)


def test_writer_that_is_behind_but_never_stale_is_seen_to_live(
    rows: Rows, jobs: Jobs, writer: Writer
) -> None:
    rows.checkpoint("late", status="expired")
    rows.parked("a", "late", writer_id="behind")
    rows.running("b", writer_id="behind", updated_at=NOW - 10 * MINUTE)
    sight_quiet(jobs.database, NOW, SIGHTED)
    writer.begin_touch("b", updated_at=NOW - 9 * MINUTE)
    writer.commit()
    sight_quiet(jobs.database, NOW + MINUTE, SIGHTED)

    assert jobs.reconcile(now=NOW + MINUTE, guards=SIGHTED) == {WAITS: 1}
    assert jobs.reconcile(now=NOW + 4 * MINUTE, guards=SIGHTED) == {EXPIRED: 1}


def test_quiet_rows_are_noted_however_many_there_are(rows: Rows, jobs: Jobs) -> None:
    """More than one statement notes at once."""
    rows.fill("s", 25, "running", {})

    assert sight_quiet(jobs.database, NOW, SIGHTED, batch_max=10) == 25
    assert sight_quiet(jobs.database, NOW + MINUTE, SIGHTED, batch_max=10) == 0
