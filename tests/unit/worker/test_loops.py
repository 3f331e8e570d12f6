"""When a loop counts as stopped, when as without its broker, and what is said of it."""

import logging
import os
import re
from datetime import timedelta

import pytest

from worker.loops import Loop, Loops

LIMIT = timedelta(minutes=2)


class Clock:
    """A monotonic clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def loops(clock: Clock) -> Loops:
    return Loops(LIMIT, Loop("consumer", clock), Loop("beat", clock))


def test_loops_that_a_process_never_had_are_not_missed(loops: Loops, clock: Clock) -> None:
    clock.now += 10_000

    assert not loops.consumer.is_expected
    assert loops.stopped() is None
    assert loops.without_broker() is None


def test_loop_stands_still_for_as_long_as_the_limit_and_no_longer(
    loops: Loops, clock: Clock
) -> None:
    """From its last mark, and from its beginning if it never left one."""
    loops.consumer.begin()
    clock.now += 120
    assert loops.stopped() is None
    clock.now += 1
    assert loops.stopped() is not None

    loops.consumer.turned()

    assert loops.stopped() is None
    clock.now += 121
    said = loops.stopped()
    assert said is not None
    assert re.fullmatch(
        r"the consumer has not turned since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \(121s\)", said
    )


def test_loop_that_ended_is_told_at_once(loops: Loops, clock: Clock) -> None:
    loops.consumer.begin()
    loops.beat.begin()

    loops.beat.end()

    said = loops.stopped()
    assert said is not None
    assert said.startswith("the beat ended at ")
    clock.now += 121
    both = loops.stopped()
    assert both is not None
    assert "the consumer has not turned" in both
    assert "the beat ended" in both
    assert "\n" not in both
    loops.beat.begin()
    loops.consumer.turned()
    assert loops.stopped() is None


def test_loop_has_no_broker_until_it_reached_it(loops: Loops, clock: Clock) -> None:
    """From its beginning, and again from when it first noticed; turning does not change that."""
    loops.beat.begin()
    clock.now += 5
    said = loops.without_broker()
    assert said is not None
    assert said.startswith("the beat has no broker since ")
    assert said.endswith("(5s)")

    loops.beat.reached()
    assert loops.without_broker() is None

    loops.beat.lost()
    clock.now += 7
    loops.beat.lost("refused")
    loops.beat.turned()
    again = loops.without_broker()
    assert again is not None
    assert again.endswith("(7s)")
    assert loops.stopped() is None


def test_what_a_fork_leaves_is_seen_by_its_parent(loops: Loops) -> None:
    """The beat of `celery worker -B` is one."""
    child = os.fork()
    if not child:
        loops.beat.begin()
        loops.beat.reached()
        loops.beat.end()
        os._exit(0)
    os.waitpid(child, 0)

    assert loops.beat.is_expected
    assert loops.without_broker() is None
    assert loops.stopped() is not None


def test_each_change_is_logged_once(
    loops: Loops, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sema_maintenance.loops")
    loops.consumer.begin()
    loops.notice()
    clock.now += 200
    for _ in range(3):
        loops.notice()
    loops.consumer.turned()
    for _ in range(3):
        loops.notice()
        loops.consumer.lost("refused")
    for _ in range(3):
        loops.consumer.reached()

    assert [record.message for record in caplog.records] == [
        "loop_stopped",
        "loop_turns_again",
        "broker_lost",
        "broker_reached",
    ]
