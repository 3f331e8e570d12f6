"""How results look: one JSON document for a program, plain tables and sentences for a person."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

import click

from worker.cli.failures import say

_GAP: Final = "  "
_CELL_MIN: Final = 8
_PROGRESS_EVERY_S: Final = 1.0


def document(value: object) -> None:
    """Print one JSON document. WHY bytes: it is UTF-8 whatever the terminal's encoding."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2, default=str).encode())


def when(at_ms: int | None) -> str:
    """A time of the ledger for a person, in UTC; a number where no calendar has it."""
    if at_ms is None:
        return "-"
    with suppress(OverflowError, ValueError, OSError):
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    return str(at_ms)


def span(milliseconds: int) -> str:
    """A length of time for a person, in one unit."""
    seconds = milliseconds / 1000
    for unit, length, enough in (("d", 86_400, 2), ("h", 3600, 2), ("min", 60, 2)):
        if seconds >= length * enough:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.3g} s"


def heard(writer_id: str, ago_ms: int) -> str:
    """What can be said of a running row: never that it lives."""
    if ago_ms < 0:
        return (
            f"last heard from writer {printable(writer_id)}, whose clock is "
            f"{-ago_ms // 1000} s ahead of the database's"
        )
    return f"last heard {ago_ms // 1000} s ago from writer {printable(writer_id)}"


def printable(text: str) -> str:
    """The text without anything that a terminal would act on."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _width(text: str) -> int:
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) != 0 for c in text)


def _cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    kept = ""
    for character in text:
        if _width(kept + character) >= width:
            break
        kept += character
    return f"{kept}…"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under a header. On a terminal the widest columns are cut until a line fits."""
    cells = [list(header)]
    cells += [["-" if c is None else printable(str(c)) for c in row] for row in rows]
    widths = [max(_width(row[place]) for row in cells) for place in range(len(header))]
    if sys.stdout.isatty():
        room = shutil.get_terminal_size().columns - len(_GAP) * (len(widths) - 1)
        while sum(widths) > room and max(widths) > _CELL_MIN:
            widths[widths.index(max(widths))] -= 1
    for row in cells:
        parts = [_cut(cell, width) for cell, width in zip(row, widths, strict=True)]
        padded = [
            part + " " * (width - _width(part)) for part, width in zip(parts, widths, strict=True)
        ]
        click.echo(_GAP.join(padded).rstrip())


def counts(report: dict[str, int]) -> str:
    """What a run did, in one phrase."""
    return ", ".join(f"{what} {count}" for what, count in report.items()) or "nothing was due"


@contextmanager
def progress(what: Callable[[], str | None]) -> Iterator[None]:
    """On a terminal, show once a second how far something long has come; in a pipe, nothing."""
    if not sys.stderr.isatty():
        yield
        return
    over = threading.Event()
    begun = time.monotonic()

    def show() -> None:
        while not over.wait(_PROGRESS_EVERY_S):
            text = what()
            if text is not None:
                sys.stderr.write(f"\r\x1b[K{time.monotonic() - begun:.0f} s: {text}")
                sys.stderr.flush()

    thread = threading.Thread(target=show, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def note_more(shown: int, what: str, more: bool) -> None:
    """Say that a list was cut, so that nobody takes it for all there is."""
    if more:
        say(f"only the newest {shown} {what} are shown; --limit N shows more")


def camel(members: dict[str, Any]) -> dict[str, Any]:
    """Members under their names on the wire; absent ones left out."""
    return {
        first + "".join(part.capitalize() for part in rest): value
        for name, value in members.items()
        if value is not None
        for first, *rest in [name.split("_")]
    }
