"""The cadence: UTC multiples of a period, whatever the process's own life and the local clocks."""

import math
import pickle
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.policy import SCHEDULED_JOBS, parse_policy
from store import needs
from worker.schedule import SCHEDULE, Entry, Slots, entries

EPOCH = datetime.fromtimestamp(0, UTC)
SHORTEST = timedelta(seconds=1)
LONGEST = timedelta(hours=24)
# What a policy may name as a period; parts of a second as well.
PERIODS = st.timedeltas(SHORTEST, LONGEST)
CENTURY_US = 100 * 365 * 86_400 * 1_000_000
TIMES = st.integers(0, CENTURY_US).map(lambda us: EPOCH + timedelta(microseconds=us))


class Beat:
    """A beat that wakes when its schedule asks it to, on a clock of the test's own."""

    def __init__(self, every: timedelta, starts_at: datetime) -> None:
        self.now = starts_at
        self.slots = Slots(every)
        self.slots.nowfun = lambda: self.now
        self.last_run_at = starts_at

    def fires_within(self, span: timedelta) -> list[datetime]:
        """When it fires during the time that follows."""
        ends = self.now + span
        fired = []
        for _ in range(10_000):
            due, wait_s = self.slots.is_due(self.last_run_at)
            if due:
                fired.append(self.now)
                self.last_run_at = self.now
            # A clock never stands still, and a sleep may end a little too early.
            self.now += max(timedelta(seconds=wait_s), timedelta(microseconds=1))
            if self.now >= ends:
                return fired
        raise AssertionError("it asks to be woken all the time")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("every", "first", "second"),
    [
        (timedelta(minutes=10), "2026-11-30 09:10", "2026-11-30 09:20"),
        (timedelta(seconds=15), "2026-11-30 09:03:30", "2026-11-30 09:03:45"),
        (timedelta(seconds=1), "2026-11-30 09:03:18", "2026-11-30 09:03:19"),
        (timedelta(seconds=2.5), "2026-11-30 09:03:17.500", "2026-11-30 09:03:20"),
        (timedelta(hours=24), "2026-12-01", "2026-12-02"),
        # No divisor of a day: counted from the epoch all the same.
        (timedelta(hours=7), "2026-11-30 16:00", "2026-11-30 23:00"),
    ],
)
def test_fires_at_utc_multiples_of_its_period(every: timedelta, first: str, second: str) -> None:
    """Started at 09:03:17.25, at no multiple of anything."""
    fired = Beat(every, at("2026-11-30 09:03:17.250")).fires_within(every * 2)

    assert fired == [at(first), at(second)]


@given(every=PERIODS, starts_at=TIMES, slots=st.integers(1, 5))
def test_fires_once_in_every_slot(every: timedelta, starts_at: datetime, slots: int) -> None:
    """Never twice in one and never past one, however odd the period."""
    beat = Beat(every, starts_at)

    fired = beat.fires_within(every * slots)

    numbers = [(moment - EPOCH) // every for moment in fired]
    begun_in = (starts_at - EPOCH) // every
    last = (starts_at + every * slots - timedelta(microseconds=1) - EPOCH) // every
    assert numbers == list(range(begun_in + 1, last + 1))


@given(every=PERIODS, moment=TIMES)
def test_slot_is_exact_to_the_microsecond(every: timedelta, moment: datetime) -> None:
    """Neither the last microsecond of a slot nor the first of the next is rounded away."""
    exact = math.floor(
        Fraction((moment - EPOCH) // timedelta(microseconds=1), every // timedelta(microseconds=1))
    )
    begins = EPOCH + exact * every

    assert Slots(every).slot(moment) == exact
    assert Slots(every).slot(begins) == exact
    assert Slots(every).slot(begins - timedelta(microseconds=1)) == exact - 1


@given(
    restarts=st.lists(st.integers(1, 3_600_000).map(lambda ms: timedelta(milliseconds=ms))),
    starts_at=TIMES,
)
def test_restarts_neither_shift_nor_starve_it(
    restarts: list[timedelta], starts_at: datetime
) -> None:
    """A process that never lives for a whole period still fires in each slot it sees begin."""
    every = timedelta(hours=1)
    born, fired, seen = starts_at, [], []
    for life in restarts:
        fired += Beat(every, born).fires_within(life)
        next_slot = EPOCH + ((born - EPOCH) // every + 1) * every
        seen += [next_slot] if next_slot < born + life else []
        born += life

    assert fired == seen


def test_restart_in_a_slot_that_fired_waits_for_the_next_one() -> None:
    every = timedelta(minutes=10)
    assert Beat(every, at("2026-11-30 09:09")).fires_within(every) == [at("2026-11-30 09:10")]

    again = Beat(every, at("2026-11-30 09:10:01"))

    assert again.slots.is_due(again.last_run_at) == (False, 599)
    assert again.fires_within(every) == [at("2026-11-30 09:20")]


def test_slots_slept_through_fire_once() -> None:
    """A machine that was suspended for an hour has one tick to make up for, not six."""
    beat = Beat(timedelta(minutes=10), at("2026-11-30 09:01"))
    beat.now = at("2026-11-30 10:03")

    assert beat.fires_within(timedelta(minutes=6)) == [at("2026-11-30 10:03")]
    assert beat.fires_within(timedelta(minutes=5)) == [at("2026-11-30 10:10")]


@pytest.mark.parametrize(
    ("zone", "changes_at"),
    [
        ("Europe/Berlin", "2026-10-25 01:00"),
        ("Europe/Berlin", "2026-03-29 01:00"),
        ("Australia/Lord_Howe", "2026-04-04 15:00"),
    ],
)
def test_daylight_saving_skips_and_repeats_nothing(zone: str, changes_at: str) -> None:
    """A clock that tells local time tells the same instants: one firing an hour all night."""
    before = at(changes_at) - timedelta(hours=2)
    beat = Beat(timedelta(hours=1), before.astimezone(ZoneInfo(zone)))
    utc_now = before

    fired = []
    for _ in range(5 * 60):
        utc_now += timedelta(minutes=1)
        beat.now = utc_now.astimezone(ZoneInfo(zone))
        due, wait_s = beat.slots.is_due(beat.last_run_at)
        assert 0 < wait_s <= 3600
        if due:
            beat.last_run_at = beat.now
            fired.append(beat.now.astimezone(UTC))

    assert fired == [before + timedelta(hours=n) for n in range(1, 6)]


def test_remaining_is_the_time_to_the_next_slot() -> None:
    slots = Slots(timedelta(minutes=10))
    slots.nowfun = lambda: at("2026-11-30 09:13:20")

    assert slots.remaining_estimate(at("2026-11-30 09:13")) == timedelta(minutes=6, seconds=40)
    assert slots.remaining_estimate(at("2026-11-30 09:10")) == timedelta(minutes=6, seconds=40)
    assert slots.remaining_estimate(at("2026-11-30 09:09:59")) == timedelta(0)
    assert slots.is_due(at("2026-11-30 09:09:59")) == (True, 400)
    assert slots.is_due(at("2026-11-30 09:10")) == (False, 400)


def test_clock_set_back_does_not_fire_a_slot_again() -> None:
    slots = Slots(timedelta(minutes=1))
    slots.nowfun = lambda: at("2026-11-30 09:09:59")

    assert slots.is_due(at("2026-11-30 09:10:00")) == (False, 61)


def test_slots_are_equal_by_period_and_survive_a_pickle() -> None:
    """Beat compares them to see whether an entry changed."""
    slots = Slots(timedelta(seconds=15))

    assert slots == Slots(timedelta(seconds=15))
    assert hash(slots) == hash(Slots(timedelta(seconds=15)))
    assert slots != Slots(timedelta(seconds=16))
    assert slots != timedelta(seconds=15)
    assert pickle.loads(pickle.dumps(slots)) == slots
    assert "0:00:15" in repr(slots)


@given(every=PERIODS)
def test_tick_expires_before_the_next_one_is_sent(every: timedelta) -> None:
    """Waiting ticks never pile up, and yet one has most of its period to be picked up."""
    entry = Entry("reap", every)

    assert every * 0.5 < entry.expires < every


def test_what_every_scheduled_job_needs_of_the_database_is_known() -> None:
    """Or /readyz could not tell."""
    wanted = needs.scheduled(entries({}), "postgres")

    tables = [each.split()[0] for each in wanted.ledger + wanted.own]
    assert len(set(tables)) == len(tables)
    assert "background_agents SELECT UPDATE DELETE" in wanted.ledger
    assert wanted.writes


def test_cadence_names_every_scheduled_job_once() -> None:
    assert sorted(entry.job for entry in SCHEDULE) == sorted(SCHEDULED_JOBS)


def test_periods_of_a_policy_replace_the_defaults_and_nothing_else() -> None:
    policy = parse_policy('[schedule]\nreap = "15s"\nrelease_sessions = "2h"', "policy.toml")

    cadence = entries(policy.schedule)

    defaults = {entry.job: entry for entry in SCHEDULE}
    assert cadence["reap"] == Entry("reap", timedelta(seconds=15))
    assert cadence["release_sessions"] == Entry("release_sessions", timedelta(hours=2))
    for job in ("flip_stale_running", "reconcile_parked"):
        assert cadence[job] == defaults[job]
    assert entries({}) == defaults
