"""Log lines: JSON, one a line, or text for a person at a terminal."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from config.durations import format_duration
from store.runs import Run

_log = logging.getLogger("sema_maintenance.run")
_LEVELS: Final = {"succeeded": logging.INFO, "partial": logging.WARNING}

# How many failing scopes a run's line names, and how long a name and what it says may be.
_FAILING_MAX: Final = 20
_NAME_MAX: Final = 200
_SENTENCE_MAX: Final = 500
_ERROR_MAX: Final = 1000

# What every record has; the rest was given by the caller as `extra`.
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, event, and what the caller added."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line."""
        line = {
            "time": _time(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return _printable(json.dumps(line, ensure_ascii=False, default=str), _json_escape)


class TextLines(logging.Formatter):
    """The same for a person: time, level, event, and name=value pairs; a run in words."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line."""
        extra = _extra(record)
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        if record.name == _log.name and "did" in extra:
            text = _run_in_words(extra)
        else:
            pairs = (f"{name}={value}" for name, value in extra.items())
            text = f"{record.getMessage()}  {'  '.join(pairs)}"
        # WHY: what a tenant wrote must not move a terminal's cursor, nor pass for another line.
        lines = [f"{_time(record):%H:%M:%S}  {level}{text}".rstrip()]
        if record.exc_info:
            lines += self.formatException(record.exc_info).splitlines()
        return "\n".join(_printable(line, _text_escape) for line in lines)


def _printable(text: str, escape: Callable[[str], str]) -> str:
    """The text with whatever a terminal, or a reader of lines, would act on spelled out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else escape(c) for c in text)


def _json_escape(character: str) -> str:
    return json.dumps(character)[1:-1]


def _text_escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


# What a run without any effect says of itself, where "nothing to do" would be wrong.
_NOTHING: Final = {"audit_memory": "memory settings looked at", "load_sample": "the sample"}


def _run_in_words(run: dict[str, Any]) -> str:
    did = ", ".join(f"{what} {count}" for what, count in sorted(run["did"].items()))
    by = "" if run["requested_by"] == "schedule" else f", asked for by {run['requested_by']}"
    more = ", more to do" if run.get("more") else ""
    error = f": {run['error']}" if "error" in run else ""
    return (
        f"{run['job']:18}  {run['outcome']} in {run['took']}{by}{more}{error}"
        f"  {did or _NOTHING.get(run['job'], 'nothing to do')}"
    )


class Flood(logging.Filter):
    """Lets through so many lines a minute of what a publisher to the broker can provoke at will.

    The first line of the next minute says how many were left out.
    """

    _EVENTS: Final = frozenset(
        {
            "message_dropped",
            "message_expired",
            "message_refused",
            "properties_dropped",
            "part_passed_over",
            "request_passed_over",
        }
    )
    _LINES_A_MINUTE: Final = 200

    def __init__(self) -> None:
        super().__init__()
        self._ends_s = 0.0
        self._lines = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is to be written."""
        if record.msg not in self._EVENTS:
            return True
        now_s = time.monotonic()
        if now_s >= self._ends_s:
            if self._lines > self._LINES_A_MINUTE:
                record.left_out = self._lines - self._LINES_A_MINUTE
            self._ends_s, self._lines = now_s + 60, 0
        self._lines += 1
        return self._lines <= self._LINES_A_MINUTE


def configure(level: str, form: Literal["auto", "json", "text"]) -> None:
    """Send every log line to standard error in the given form; 'auto' is text on a terminal."""
    text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextLines() if text else JsonLines())
    handler.addFilter(Flood())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("sema_maintenance").setLevel(level.upper())
    # WHY quieter than ours: they report each retry of a connection as an error with its traceback.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    # WHY: it warns that memory:// names no host, which it cannot.
    logging.getLogger("kombu.connection").setLevel(logging.ERROR)


def log_run(run: Run) -> None:
    """The one line that says how a run ended, with its whole outcome."""
    extra: dict[str, Any] = {
        "job": run.job,
        "outcome": run.state,
        "did": run.report,
        "took": format_duration(timedelta(milliseconds=(run.finished_at or 0) - run.started_at)),
        "requested_by": run.requested_by,
        "run_id": str(run.run_id),
    }
    if run.slot is not None:
        slot = datetime.fromtimestamp(run.slot / 1000, UTC)
        extra["slot"] = slot.isoformat(timespec="seconds")
    if run.more:
        extra["more"] = True
    if run.overrides:
        extra["overrides"] = list(run.overrides)
    if run.error is not None:
        extra["error"] = run.error[:_ERROR_MAX]
    if run.failing:
        named = sorted(run.failing.items())[:_FAILING_MAX]
        extra["failing"] = {s[:_NAME_MAX]: error[:_SENTENCE_MAX] for s, error in named}
        if len(run.failing) > _FAILING_MAX:
            extra["failing_more"] = len(run.failing) - _FAILING_MAX
    _log.log(_LEVELS.get(run.state, logging.ERROR), "run", extra=extra)
