"""A figure read in the background: nobody waits for long, and the database is left in peace."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import StoreUnavailable
from worker.paced import REST, Paced, Reading, pause_s

LONG_S = 10.0


class Hands:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Source:
    """What a figure is read from: counts the readings, fails or dawdles as told."""

    def __init__(self, clock: Hands, takes_s: float = 0.0) -> None:
        self.clock = clock
        self.takes_s = takes_s
        self.readings = 0
        self.error: Exception | None = None
        self.open = threading.Event()
        self.open.set()
        self.begun = threading.Event()

    def read(self) -> int:
        self.readings += 1
        self.begun.set()
        assert self.open.wait(LONG_S)
        self.clock.now_s += self.takes_s
        if self.error is not None:
            raise self.error
        return self.readings


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def source(clock: Hands) -> Source:
    return Source(clock)


def paced(source: Source, rest: float = REST) -> Paced[int]:
    return Paced("rows", source.read, 1.0, rest=rest, monotonic=source.clock)


@given(
    at_least_s=st.floats(0.001, 3600), took_s=st.floats(0, 3600), failures=st.integers(0, 10_000)
)
def test_reading_never_costs_more_than_its_share(
    at_least_s: float, took_s: float, failures: int
) -> None:
    rest_s = pause_s(at_least_s, took_s, failures)

    assert rest_s >= at_least_s
    assert rest_s <= max(at_least_s, took_s * REST)
    if not failures:
        assert took_s <= (took_s + rest_s) / 20


@pytest.mark.parametrize(
    ("took_s", "failures", "expected_s"),
    [
        (0.001, 0, 1.0),
        (0.05, 0, 1.0),
        (0.051, 0, 1.02),
        (30, 0, 600),
        (30, 1, 1.0),
        (30, 2, 2.0),
        (30, 10, 512),
        (30, 11, 600),
        (0, 11, 1.0),
    ],
)
def test_a_failure_is_tried_again_soon_and_then_ever_more_rarely(
    took_s: float, failures: int, expected_s: float
) -> None:
    assert pause_s(1.0, took_s, failures) == pytest.approx(expected_s)


def test_who_asks_again_too_soon_gets_what_is_known(source: Source, clock: Hands) -> None:
    source.takes_s = 2.0
    figure = paced(source)

    assert figure.ask(LONG_S) == Reading(1, None)
    clock.now_s += 2.0 * REST - 0.001
    assert figure.ask(LONG_S) == Reading(1, None)
    clock.now_s += 0.001
    assert figure.ask(LONG_S) == Reading(2, None)


def test_what_costs_nothing_is_read_as_often_as_allowed(source: Source, clock: Hands) -> None:
    """A database that comes back is seen at once, however long it kept everybody waiting."""
    source.takes_s, source.error = 5.0, StoreUnavailable("down")
    figure = paced(source, rest=0)

    for tries in range(1, 9):
        assert figure.ask(LONG_S).problem == "down"
        assert source.readings == tries
        clock.now_s += 1.0


def test_a_slow_reading_keeps_nobody(source: Source, clock: Hands) -> None:
    """What was known before is shown while the next reading is under way."""
    figure = paced(source)
    assert figure.ask(LONG_S).value == 1
    source.open.clear()
    clock.now_s += 1.0

    assert figure.ask(0.001) == Reading(1, None, late=True)
    assert figure.known() == Reading(1, None, late=True)

    source.open.set()
    assert figure.known(LONG_S) == Reading(2, None)


def test_however_many_ask_one_reads(source: Source) -> None:
    source.open.clear()
    figure = paced(source)
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(figure.ask, LONG_S) for _ in range(8)]
        assert source.begun.wait(LONG_S)
        source.open.set()
        found = {answer.result(LONG_S) for answer in answers}

    assert found == {Reading(1, None)}
    assert source.readings == 1


def test_a_failure_is_told_and_the_last_value_kept(
    source: Source, clock: Hands, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has one line when reading begins to fail and one when it works again."""
    caplog.set_level(logging.INFO, "sema_maintenance.paced")
    figure = paced(source)
    figure.ask(LONG_S)
    source.error = StoreUnavailable("the database does not answer")
    for _ in range(3):
        clock.now_s += LONG_S
        assert figure.ask(LONG_S) == Reading(1, "the database does not answer")
    source.error = None
    clock.now_s += LONG_S

    assert figure.ask(LONG_S) == Reading(5, None)
    assert [record.message for record in caplog.records] == [
        "figure_not_read",
        "figure_read_again",
    ]


def test_how_old_a_value_is_and_since_when_reading_works(source: Source, clock: Hands) -> None:
    """Since the first time it worked, however often that was; a value ages until the next."""
    figure = paced(source)
    assert figure.known().age_s is None
    assert figure.known().since_s is None
    source.takes_s = 0.5
    figure.ask(LONG_S)
    clock.now_s += 30.0
    source.takes_s = 0.0
    figure.ask(LONG_S)
    clock.now_s += 0.25

    found = figure.known()
    assert (found.age_s, found.since_s) == (0.25, 30.25)


def test_since_when_reading_fails(source: Source, clock: Hands) -> None:
    """Since the first failure in a row began; the value ages on, and its success ends it."""
    figure = paced(source)
    figure.ask(LONG_S)
    clock.now_s += 20.0
    source.error, source.takes_s = StoreUnavailable("down"), 3.0
    for _ in range(3):
        figure.ask(LONG_S)
        clock.now_s += LONG_S

    found = figure.known()
    assert (found.age_s, found.since_s) == (59.0, 39.0)

    source.error, source.takes_s = None, 0.0
    clock.now_s += LONG_S
    figure.ask(LONG_S)
    assert (figure.known().age_s, figure.known().since_s) == (0.0, 0.0)


def test_reading_that_does_not_come_back_counts_from_its_begin(
    source: Source, clock: Hands
) -> None:
    """Also where the one before it was well, and a while ago."""
    figure = paced(source)
    figure.ask(LONG_S)
    clock.now_s += 50.0
    source.open.clear()
    figure.ask(0.001)
    clock.now_s += 2.0

    found = figure.known()
    assert (found.late, found.age_s, found.since_s) == (True, 52.0, 2.0)
    source.open.set()
    assert figure.known(LONG_S).late is False


def test_a_defect_is_told_in_one_line_and_is_not_the_end(source: Source, clock: Hands) -> None:
    figure = paced(source)
    source.error = KeyError("a value that is nobody's business")

    problem = figure.ask(LONG_S).problem

    assert problem == "an unexpected KeyError; log level debug shows where"
    source.error = None
    clock.now_s += LONG_S
    assert figure.ask(LONG_S) == Reading(2, None)


def test_a_closed_figure_is_not_read_any_more(source: Source, clock: Hands) -> None:
    figure = paced(source)
    figure.ask(LONG_S)
    figure.close(LONG_S)
    clock.now_s += LONG_S

    assert figure.ask(LONG_S) == Reading(1, None)
    assert source.readings == 1


def test_closing_waits_for_the_reading_under_way(source: Source) -> None:
    source.open.clear()
    figure = paced(source)
    assert figure.ask(0).late
    assert source.begun.wait(LONG_S)
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(figure.close, LONG_S)
        assert not closing.done()
        source.open.set()
        closing.result(LONG_S)

    assert figure.known() == Reading(1, None)


def test_figures_that_share_a_turn_are_read_in_turn(clock: Hands) -> None:
    turn = threading.Lock()
    first, second = Source(clock), Source(clock)
    first.open.clear()
    one, two = (
        Paced(name, source.read, 1.0, turn=turn, monotonic=clock)
        for name, source in (("one", first), ("two", second))
    )
    one.ask(0)
    assert first.begun.wait(LONG_S)

    assert two.ask(0.01) == Reading(None, None, late=True)
    assert second.readings == 0

    first.open.set()
    assert two.known(LONG_S) == Reading(1, None)
    assert one.known(LONG_S) == Reading(1, None)


def test_no_thread_left_is_told(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    figure = paced(source)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert figure.ask(LONG_S) == Reading(None, "can't start new thread")

    assert figure.ask(LONG_S) == Reading(1, None)
