"""A process changes no more rows a second than it may, and a stop never waits for that."""

import threading

import pytest

from worker.pace import Pace


class Clock:
    """Seconds that pass only while somebody waits or works."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now_s += seconds


def never() -> bool:
    return False


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pace(clock: Clock) -> Pace:
    return Pace(1000, clock, clock.sleep)


def test_a_job_that_is_too_fast_comes_down_to_the_rate(clock: Clock, pace: Pace) -> None:
    """A hundred batches of a hundred rows in no time at all take ten seconds at 1,000 a second."""
    for _ in range(100):
        pace.keep(100, never)

    assert clock.now_s == pytest.approx(1010)


def test_a_job_that_is_slow_by_itself_does_not_wait(clock: Clock, pace: Pace) -> None:
    for _ in range(10):
        clock.now_s += 0.1
        pace.keep(100, never)

    assert clock.waits == []


def test_the_time_a_batch_took_counts_towards_its_rows(clock: Clock, pace: Pace) -> None:
    """60 ms of work and 40 ms of waiting make 100 rows at 1,000 a second."""
    for _ in range(10):
        clock.now_s += 0.06
        pace.keep(100, never)

    assert clock.now_s == pytest.approx(1001)


def test_idle_time_is_not_made_up_for(clock: Clock, pace: Pace) -> None:
    """After an hour of nothing only the first batch finds its rows paid for."""
    clock.now_s += 3600
    for _ in range(11):
        pace.keep(100, never)

    assert clock.now_s == pytest.approx(4601)


def test_a_batch_that_changed_nothing_costs_nothing(clock: Clock, pace: Pace) -> None:
    pace.keep(0, never)

    assert clock.waits == []


def test_a_stop_ends_the_wait(clock: Clock, pace: Pace) -> None:
    """Within a tenth of a second, however long it would have been."""
    pace.keep(1_000_000, lambda: clock.now_s >= 1003)

    assert 1003 <= clock.now_s <= 1003.2


def test_threads_share_the_rate() -> None:
    """What one of them changed the others wait for, each for its own batch."""
    clock = Clock()
    pace = Pace(1000, clock, clock.sleep)
    threads = [threading.Thread(target=pace.keep, args=(1000, never)) for _ in range(4)]
    for thread in threads:
        thread.start()
        thread.join()

    assert clock.now_s == pytest.approx(1004)
