"""Log lines: one JSON object each, or one line for a person; a run's line holds its outcome."""

import json
import logging
import sys
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from store.runs import Run
from worker.logs import Flood, configure, log_run

RUN_ID = UUID("0f8b6a1c-94c5-4a53-9d6e-3f6f2a7c1d20")
SLOT = 1_796_029_200_000  # 2026-11-30 09:00 UTC
ODD = 'two\nlines\r\n\t"quoted" \\ \x00 \x1b[31m 東京 \u2028'


@pytest.fixture(autouse=True)
def loggers() -> Iterator[None]:
    """Puts back what `configure` changes for the whole process."""
    root = logging.getLogger()
    names = ("", "sema_maintenance", "psycopg.pool", "kombu.connection")
    handlers, levels = root.handlers[:], {name: logging.getLogger(name).level for name in names}
    yield
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


class Written:
    """Standard error, which each test reads once."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def lines(self) -> list[str]:
        """What was written since, a line per line feed."""
        text = self._capsys.readouterr().err
        assert text.endswith("\n")
        return text[:-1].split("\n")

    def only_line(self) -> str:
        (line,) = self.lines()
        return line

    def objects(self) -> list[dict[str, Any]]:
        """The JSON objects that were written, each on a line of its own."""
        found = [json.loads(line) for line in self.lines()]
        assert all(isinstance(each, dict) for each in found)
        return found

    def only_object(self) -> dict[str, Any]:
        (found,) = self.objects()
        return found


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Written:
    """What is written to standard error, which is no terminal."""
    return Written(capsys)


def a_run(**members: Any) -> Run:
    """A tick that succeeded, with whatever members a test is about."""
    plain: dict[str, Any] = {
        "run_id": RUN_ID,
        "job": "reap",
        "slot": SLOT,
        "requested_by": "schedule",
        "overrides": (),
        "state": "succeeded",
        "started_at": SLOT + 31,
        "finished_at": SLOT + 1_531,
        "report": {"max_age": 12, "keep": 3, "lost_race": 1},
    }
    return Run(**(plain | members))


def test_record_is_one_json_object_on_one_line(stderr: Written) -> None:
    """Whatever a value holds: line ends, quotes, control characters, other scripts."""
    configure("info", "json")

    logging.getLogger("sema_maintenance.frame").warning(
        "tick_failed", extra={"job": "reap", "error": ODD, "counts": {"max_age": 1}}
    )

    line = stderr.only_object()
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warning",
        "logger": "sema_maintenance.frame",
        "event": "tick_failed",
        "job": "reap",
        "error": ODD,
        "counts": {"max_age": 1},
    }


def test_each_record_is_a_line_of_its_own(stderr: Written) -> None:
    configure("debug", "json")
    log = logging.getLogger("sema_maintenance.frame")

    for number in range(3):
        log.debug("batch", extra={"number": number})

    lines = stderr.objects()
    assert [(line["event"], line["number"]) for line in lines] == [("batch", n) for n in range(3)]


def test_value_that_json_has_no_form_for_is_written_as_text(stderr: Written) -> None:
    configure("info", "json")

    logging.getLogger("sema_maintenance").info("run", extra={"run_id": RUN_ID, "error": OSError(1)})

    line = stderr.only_object()
    assert (line["run_id"], line["error"]) == (str(RUN_ID), "1")


def test_foreign_record_with_arguments_and_traceback_stays_one_line(stderr: Written) -> None:
    """Celery's own errors come with a format, arguments and a traceback."""
    configure("info", "json")
    try:
        raise ZeroDivisionError("over\nnothing")
    except ZeroDivisionError:
        logging.getLogger("celery.worker").exception("consumer: %s", "lost\nits broker")

    line = stderr.only_object()
    assert line["event"] == "consumer: lost\nits broker"
    assert line["level"] == "error"
    assert "ZeroDivisionError: over\nnothing" in line["traceback"]


def test_line_says_when_in_utc_to_the_millisecond(stderr: Written) -> None:
    configure("info", "json")
    record = logging.makeLogRecord(
        {"name": "sema_maintenance", "levelno": logging.INFO, "msg": "run", "created": 1.25}
    )

    logging.getLogger("sema_maintenance").handle(record)

    assert stderr.only_object()["time"] == "1970-01-01T00:00:01.250+00:00"


@pytest.mark.parametrize(
    ("level", "heard"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_level_is_the_least_severe_of_ours_that_is_written(
    stderr: Written, level: str, heard: list[str]
) -> None:
    configure(level, "json")

    for name in ("debug", "info", "warning", "error"):
        logging.getLogger("sema_maintenance.frame").log(getattr(logging, name.upper()), "said")

    assert [line["level"] for line in stderr.objects()] == heard


def test_libraries_are_heard_from_warning_on_and_the_pool_not_at_all(stderr: Written) -> None:
    """The pool reports each retry of a connection as a warning of its own."""
    configure("debug", "json")

    logging.getLogger("celery.worker").info("task received")
    logging.getLogger("psycopg.pool").warning("error connecting")
    logging.getLogger("kombu.connection").warning("no hostname")
    logging.getLogger("celery.worker").warning("heard")

    assert stderr.only_object()["event"] == "heard"


def test_configured_twice_writes_each_line_once(stderr: Written) -> None:
    """`run` configures, and Celery's own signal asks for it again."""
    configure("info", "json")
    configure("info", "json")

    logging.getLogger("sema_maintenance").info("said")

    assert stderr.only_object()["event"] == "said"


def test_auto_is_json_in_a_pipe(stderr: Written) -> None:
    configure("info", "auto")

    log_run(a_run())

    assert stderr.only_object()["job"] == "reap"


def test_auto_is_text_on_a_terminal_and_json_where_it_is_asked_for(
    stderr: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    configure("info", "auto")
    log_run(a_run())
    assert not stderr.only_line().startswith("{")

    configure("info", "json")
    log_run(a_run())
    assert stderr.only_object()["job"] == "reap"


def test_line_of_a_tick_holds_its_whole_outcome(stderr: Written) -> None:
    configure("info", "json")

    log_run(a_run())

    line = stderr.only_object()
    line.pop("time")
    assert line == {
        "level": "info",
        "logger": "sema_maintenance.run",
        "event": "run",
        "job": "reap",
        "outcome": "succeeded",
        "did": {"max_age": 12, "keep": 3, "lost_race": 1},
        "took": "1.5s",
        "requested_by": "schedule",
        "run_id": str(RUN_ID),
        "slot": "2026-11-30T09:00:00+00:00",
    }


def test_line_of_a_failed_run_is_an_error_and_says_why(stderr: Written) -> None:
    configure("info", "json")

    log_run(a_run(state="failed", error="the database does not answer", report={}, more=True))

    line = stderr.only_object()
    assert (line["level"], line["outcome"]) == ("error", "failed")
    assert line["error"] == "the database does not answer"
    assert line["did"] == {}
    assert line["more"] is True


def test_line_of_a_run_by_hand_says_who_asked_and_what_was_lifted(stderr: Written) -> None:
    configure("info", "json")

    log_run(a_run(slot=None, requested_by="ada@ops", overrides=("floors",)))

    line = stderr.only_object()
    assert (line["requested_by"], line["overrides"]) == ("ada@ops", ["floors"])
    assert "slot" not in line
    assert "more" not in line


def test_run_in_words_is_one_line_with_what_it_did(stderr: Written) -> None:
    configure("info", "text")

    log_run(a_run())

    line = stderr.only_line()
    assert "reap" in line
    assert "succeeded in 1.5s" in line
    assert "keep 3, lost_race 1, max_age 12" in line
    assert "schedule" not in line


def test_run_in_words_says_what_is_out_of_the_ordinary(stderr: Written) -> None:
    configure("info", "text")

    log_run(a_run(state="failed", requested_by="ada", more=True, error="it broke", report={}))

    line = stderr.only_line()
    assert "error: reap" in line
    for part in ("failed in 1.5s", "asked for by ada", "more to do", "it broke", "nothing to do"):
        assert part in line


def test_text_of_any_record_is_its_event_and_values(stderr: Written) -> None:
    configure("info", "text")

    logging.getLogger("sema_maintenance.http").warning("http_not_served", extra={"address": "a:1"})

    line = stderr.only_line()
    assert line.partition("  ")[2] == "warning: http_not_served  address=a:1"


def test_line_of_a_partial_run_names_its_failing_scopes_up_to_a_number(stderr: Written) -> None:
    """A thousand tenants that fail at once are no reason for a line of a megabyte."""
    configure("info", "json")
    failing = {f"s{n:04}": "x" * 10_000 for n in range(1000)}

    log_run(a_run(state="partial", error="1000 scopes could not be done in full", failing=failing))

    line = stderr.only_object()
    assert (line["level"], line["outcome"]) == ("warning", "partial")
    assert list(line["failing"]) == [f"s{n:04}" for n in range(20)]
    assert set(line["failing"].values()) == {"x" * 500}
    assert line["failing_more"] == 980


def test_line_of_a_partial_run_cuts_names_and_its_error(stderr: Written) -> None:
    """A scope's name may be as long as its tenant likes."""
    configure("info", "json")

    log_run(a_run(state="partial", error="y" * 10_000, failing={"s" * 10_000: "x"}))

    line = stderr.only_object()
    assert line["failing"] == {"s" * 200: "x"}
    assert line["error"] == "y" * 1000


def test_few_failing_scopes_are_all_named(stderr: Written) -> None:
    configure("info", "json")

    log_run(a_run(state="partial", failing={"b": "two", "a": "one"}))

    line = stderr.only_object()
    assert line["failing"] == {"a": "one", "b": "two"}
    assert "failing_more" not in line


@pytest.mark.parametrize("form", ["json", "text"])
def test_no_line_holds_what_a_terminal_acts_on(stderr: Written, form: Any) -> None:
    """Escapes, other line ends, marks that turn the direction of text, half surrogate pairs."""
    hostile = ODD + "\x7f\x85\x9b2J\u2029\u202e\U000e0001\ud800"
    configure("info", form)

    logging.getLogger("sema_maintenance.drain_harvest").warning(
        "memory_harvest_rejected", extra={"example": {"detail": hostile}, "scope": hostile}
    )

    line = stderr.only_line()
    assert line.isprintable()
    assert "東京" in line
    if form == "json":
        assert json.loads(line)["scope"] == hostile


def test_flood_that_a_publisher_can_provoke_is_cut_and_nothing_else_is() -> None:
    """Two hundred lines a minute of a kind that costs its sender nothing."""
    flood = Flood()

    def written(event: str, count: int) -> int:
        return sum(bool(flood.filter(logging.makeLogRecord({"msg": event}))) for _ in range(count))

    assert written("message_dropped", 150) == 150
    assert written("message_refused", 150) == 50
    assert written("run", 1000) == 1000
