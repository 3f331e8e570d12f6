"""Where each job stands, as far as is known."""

from dataclasses import replace
from datetime import timedelta

import pytest

from config.windows import parse_windows
from store.figures import Stopped
from store.overview import Slot
from tests.unit.worker.standings import (
    NEVER,
    NOW,
    NOW_MS,
    PAST,
    WELL,
    away,
    now,
    run,
    standing,
    with_past,
    with_present,
)
from worker.jobs import JOBS
from worker.standing import JobStanding, Standing, at

MINUTE = timedelta(minutes=1)
# The slot that NOW lies in, of a job that runs once a minute.
PRESENT_SLOT = NOW_MS - NOW_MS % 60_000


def job(found: Standing, name: str) -> JobStanding:
    return next(each for each in found.jobs() if each.job == name)


def test_every_job_is_there_once_those_of_the_schedule_first() -> None:
    names = [each.job for each in standing().jobs()]

    assert sorted(names) == sorted(JOBS)
    assert names[0] == "flip_stale_running"
    assert names[-1] == "audit_memory"


def test_next_slot_is_the_next_multiple_of_the_period() -> None:
    found = job(standing(reap=timedelta(minutes=3)), "reap")

    assert found.every == timedelta(minutes=3)
    assert found.next_at == NOW.replace(minute=51, second=0)
    assert job(standing(), "audit_memory").next_at is None


def test_period_is_that_of_the_beat_that_ticks() -> None:
    slots = {"reap": Slot(PRESENT_SLOT, 120_000)}

    assert job(with_past(slots=slots), "reap").every == 2 * MINUTE


@pytest.mark.parametrize(
    ("slots_ago", "late"), [(0, False), (1, False), (2, False), (3, True), (30, True), (-3, False)]
)
def test_job_is_late_after_three_periods_without_a_tick(slots_ago: int, late: bool) -> None:
    """Here 24 seconds more; a tick or two that were lost are made up for."""
    slots = {"reap": Slot(PRESENT_SLOT - slots_ago * 60_000, 60_000)}
    read = replace(WELL, past=now(replace(PAST, slots=slots)))

    assert job(standing(read, reap=MINUTE), "reap").late is late


def test_longer_of_two_periods_is_allowed() -> None:
    """The one with which the beat began, or that of this process's own policy."""
    slots = {"reap": Slot(PRESENT_SLOT - 5 * 60_000, 60_000)}
    read = replace(WELL, past=now(replace(PAST, slots=slots)))

    assert job(standing(read, reap=MINUTE), "reap").late
    assert not job(standing(read, reap=2 * MINUTE), "reap").late


def test_nobody_is_late_while_the_database_is_away() -> None:
    """What was last read says nothing of what was done since."""
    slots = {"reap": Slot(PRESENT_SLOT - 3_600_000, 60_000)}
    read = replace(WELL, past=now(replace(PAST, slots=slots)))

    assert job(standing(read), "reap").late
    assert not job(away(read), "reap").late


def test_the_database_s_clock_judges() -> None:
    read = replace(WELL, pulse=now(timedelta(minutes=10)))

    assert standing(read).ledger_now == NOW + 10 * MINUTE
    assert job(standing(read, reap=MINUTE), "reap").next_at == NOW.replace(minute=59, second=0)


def test_windows_say_when_the_next_opens() -> None:
    found = standing(windows={"reap": parse_windows(["00:48-02:00"])})

    assert job(found, "reap").windows == ("00:48-02:00",)
    assert job(found, "reap").open_in == timedelta(minutes=59, seconds=36)
    assert job(found, "housekeeping").open_in is None


def test_what_keeps_a_job_from_working_is_with_it() -> None:
    paused, held = Stopped(everywhere=True, scopes=0), Stopped(everywhere=False, scopes=2)
    found = job(
        with_present(pauses={"reap": paused}, breakers={"reap": held}, failing={"reap": 7}), "reap"
    )

    assert (found.pause, found.breaker, found.failing) == (paused, held, 7)


def test_no_run_is_told_from_no_knowledge() -> None:
    runs = {"reap": [run("reap")]}

    assert job(with_past(runs=runs), "reap").runs == runs["reap"]
    assert job(standing(), "reap").runs_known
    assert not job(standing(NEVER), "reap").runs_known


def test_time_that_no_calendar_has_is_none() -> None:
    assert at(NOW_MS) == NOW
    assert at(2**63 - 1) is None
    assert at(-(2**63)) is None
