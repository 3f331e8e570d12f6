"""Maintenance windows hold the schedule, and nobody else, to their times; on a real ledger."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from config.policy import Policy, parse_policy
from config.settings import load_settings
from store import outage, requests, runs
from store.agents import PostgresAgentStore
from store.batches import Stamp
from store.database import Database
from tests.store.stores import ended
from worker import frame, manual
from worker.context import Process

ROWS = 4
HOUR = timedelta(hours=1)


def around(at: datetime) -> str:
    """A window that lies an hour to both sides of a time."""
    return f"{at - HOUR:%H:%M}-{at + HOUR:%H:%M}"


@pytest.fixture
def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def process(plain_ledger: tuple[str, Database]) -> Iterator[Process]:
    url, database = plain_ledger
    store = PostgresAgentStore(database)
    for number in range(ROWS):
        store.put(ended(f"row {number}"))
    process = Process(load_settings({"MAINT_DATABASE_URL": url}), opening(datetime.now(UTC)))
    yield process
    process.close()


def opening(at: datetime) -> Policy:
    """A policy by which the rows are due, and anything is done around that time only."""
    windows = f'[windows]\nreap = "{around(at)}"\nflip_stale_running = "{around(at)}"\n'
    ages = '[defaults]\nmax_age = "1h"\nstale_running_max_age = "15m"\n'
    return parse_policy(f'[schedule]\nreap = "24h"\n{windows}{ages}', "policy.toml")


def last(process: Process) -> runs.Run:
    [run] = runs.list_runs(process.database, "reap", 1)
    return run


def ticked(process: Process) -> runs.Run:
    for run_id, number in frame.tick(process, "reap"):
        frame.work(process, run_id, number)
    return last(process)


def test_tick_within_a_window_does_its_work(process: Process) -> None:
    assert ticked(process).report == {"max_age": ROWS}


def test_tick_outside_is_on_record_and_does_nothing(process: Process, now: datetime) -> None:
    """It succeeds: a job that waits for its window is not one that does not run."""
    process.policy = opening(now + 12 * HOUR)
    run = ticked(process)
    assert (run.state, run.report, run.more) == ("succeeded", {}, False)


def test_watch_goes_on_outside(process: Process, now: datetime) -> None:
    """Or every flip would be held for an outage that was none, once the window opens."""
    process.policy = opening(now + 12 * HOUR)
    assert not [*frame.tick(process, "flip_stale_running")]
    with process.database.transaction(read_only=True) as tx:
        assert outage.watched(tx, "flip_stale_running", runs.clock(tx)).ticked_at is not None


def test_part_whose_window_closed_before_it_began_is_left_to_the_next(
    process: Process, now: datetime
) -> None:
    [(run_id, number)] = frame.tick(process, "reap")
    process.policy = opening(now + 12 * HOUR)
    frame.work(process, run_id, number)
    assert (last(process).state, last(process).report, last(process).more) == (
        "succeeded",
        {},
        True,
    )


def test_part_ends_with_its_window(process: Process) -> None:
    """After the batch in hand, as with its budget."""
    assert process.context(Stamp(0), open_for=timedelta(0)).stop()
    assert not process.context(Stamp(0), open_for=HOUR).stop()


def test_person_is_not_bound_by_them(process: Process, now: datetime) -> None:
    process.policy = opening(now + 12 * HOUR)
    run = manual.by_hand(process, "reap", None, policy=process.policy, requested_by="test")
    assert run.report == {"max_age": ROWS}


def test_request_is_not_bound_by_them(process: Process, now: datetime) -> None:
    process.policy = opening(now + 12 * HOUR)
    asked = uuid4()
    requests.place(
        process.database, asked, "reap", None, policy=None, overrides=(), requested_by="test"
    )
    for run_id, number in frame.take(process, asked):
        frame.work(process, run_id, number)
    assert last(process).report == {"max_age": ROWS}
