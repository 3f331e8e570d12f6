"""How results look: one JSON document for a program, plain tables and sentences for a person."""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from config.terminal import is_dumb, wants_colours
from worker.cli.failures import CLEAR_LINE, progress_shown, say

if TYPE_CHECKING:
    from store.runs import Run

_GAP: Final = "  "
_CELL_MIN: Final = 8
# What is no longer than this, such as a time or the name of a job, is never cut.
_WHOLE_MAX: Final = 20
_BAR: Final = 20
_UTC: Final = " (UTC)"
_TIME: Final = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b")
_SAME_YEAR: Final = timedelta(days=300)
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


class Coloured(str):
    """A word whose colour, on a terminal that has any, repeats what it says."""

    __slots__ = ("colour",)
    colour: str

    def shown(self, text: str) -> str:
        """The text in this colour where colours are wanted."""
        return click.style(text, fg=self.colour) if has_colours(sys.stdout) else text


_OUTCOMES: Final = {
    **dict.fromkeys(("succeeded", "ok", "completed"), "green"),
    **dict.fromkeys(("partial", "warning", "lost", "late"), "yellow"),
    **dict.fromkeys(("failed", "error", "refused", "dead"), "red"),
}


def outcome(word: str) -> str:
    """How something ended, in the colour of that."""
    if word not in _OUTCOMES:
        return word
    coloured = Coloured(word)
    coloured.colour = _OUTCOMES[word]
    return coloured


def painted(text: str, word: str) -> str:
    """The text in the colour of how something ended, where colours are wanted."""
    return look.shown(text) if isinstance(look := outcome(word), Coloured) else text


def has_colours(stream: TextIO) -> bool:
    """Whether what is written there is seen by a person who wants colours."""
    return stream.isatty() and wants_colours()


def _width(text: str) -> int:
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.category(c) in {"Mn", "Me"} for c in text)


def cut(text: str, width: int) -> str:
    """The text in so many columns of a terminal; where it is cut it says so."""
    if _width(text) <= width:
        return text
    kept = ""
    for character in text:
        if _width(kept + character) >= width:
            break
        kept += character
    return f"{kept}…"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under a header: whole in a pipe, and on a terminal such that each line fits.

    There times are shortened first, then the longest texts are cut; numbers, times and names of
    states stay whole. Where even that is too wide, each row is a block of lines.
    """
    cells = [["-" if c is None else _plain(c) for c in row] for row in rows]
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    titles, widths = list(header), _widths(header, cells)
    if columns is not None and _together(widths) > columns:
        now = datetime.now(UTC)
        blocks = cells
        cells = [[_like(cell, _shortened(cell, now)) for cell in row] for row in cells]
        titles = [title.removesuffix(_UTC) for title in header]
        narrow = _narrowed(titles, cells, columns)
        if narrow is None:
            _blocks(header, blocks, columns)
            return
        widths = narrow
    for row in (titles, *cells):
        click.echo(_GAP.join(map(_padded, row, widths)).rstrip())


def _plain(cell: object) -> str:
    text = str(cell)
    return cell if isinstance(cell, Coloured) else printable(text)


def _like(cell: str, text: str) -> str:
    return cell if isinstance(cell, Coloured) else text


def _padded(cell: str, width: int) -> str:
    text = cut(cell, width)
    text += " " * (width - _width(text))
    return cell.shown(text) if isinstance(cell, Coloured) else text


def _widths(header: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(_width, column)) for column in zip(header, *cells, strict=True)]


def _together(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _narrowed(
    header: Sequence[str], cells: Sequence[Sequence[str]], columns: int
) -> list[int] | None:
    """How wide each column may be so that all fit; None: not so that they can be read."""
    widths = _widths(header, cells)
    floors = []
    for title, width, *column in zip(header, widths, *cells, strict=True):
        longest = max(map(_width, column), default=0)
        least = longest if longest <= _WHOLE_MAX else _CELL_MIN
        floors.append(min(width, max(least, min(len(title), _CELL_MIN))))
    if _together(floors) > columns:
        return None
    while _together(widths) > columns:
        room = [width - floor for width, floor in zip(widths, floors, strict=True)]
        widest = max((width, at) for at, width in enumerate(widths) if room[at] > 0)
        widths[widest[1]] -= 1
    return widths


def _blocks(header: Sequence[str], cells: Sequence[Sequence[str]], columns: int) -> None:
    """Each row as lines of its own, a name and a value each."""
    widest = max(map(_width, header))
    for number, row in enumerate(cells):
        if number:
            click.echo()
        for title, cell in zip(header, row, strict=True):
            line = title.ljust(widest) + _GAP
            room = max(_CELL_MIN, columns - len(line))
            click.echo(line + _padded(cell, min(room, _width(cell))))


def _shortened(cell: str, now: datetime) -> str:
    """The times in a cell without what goes without saying: today's date, or the year."""

    def near(match: re.Match[str]) -> str:
        then = datetime.strptime(match[0], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
        if then.date() == now.date():
            return f"{then:%H:%M:%S}"
        return f"{then:%m-%d %H:%M}" if abs(now - then) < _SAME_YEAR else f"{then:%Y-%m-%d}"

    return _TIME.sub(near, cell)


def counts(report: dict[str, int]) -> str:
    """What a run did, in one phrase."""
    return ", ".join(f"{what} {count}" for what, count in report.items()) or "nothing was due"


def did(run: Run) -> str:
    """How a run went, in one phrase; of one that is under way, what is on record by now."""
    if run.error is not None:
        return run.error
    if run.state == "running":
        return counts(run.report) if run.report else "under way"
    return f"{counts(run.report)}{', more to do' if run.more else ''}"


@contextmanager
def progress(
    what: Callable[[], str | None], share: Callable[[], float | None] = lambda: None
) -> Iterator[None]:
    """On a terminal, show once a second how far something long has come; in a pipe, nothing.

    `share`: which part of it is done, from 0 to 1, where that is known: shown as a bar.
    """
    if not sys.stderr.isatty() or is_dumb():
        yield
        return
    over = threading.Event()
    begun = time.monotonic()

    def show() -> None:
        while not over.wait(_PROGRESS_EVERY_S):
            text = what()
            if text is not None:
                line = f"{_bar(share())}{time.monotonic() - begun:.0f} s: {printable(text)}"
                # WHY one less: a line that fills a terminal to its edge moves on to the next.
                line = cut(line, shutil.get_terminal_size().columns - 1)
                sys.stderr.write(f"{CLEAR_LINE}{line}")
                sys.stderr.flush()

    thread = threading.Thread(target=show, name="progress", daemon=True)
    thread.start()
    progress_shown.set()
    try:
        yield
    finally:
        over.set()
        thread.join()
        progress_shown.clear()
        sys.stderr.write(CLEAR_LINE)
        sys.stderr.flush()


def _bar(share: float | None) -> str:
    if share is None:
        return ""
    done = min(1.0, max(0.0, share))
    full = int(done * _BAR)
    return f"[{'#' * full}{'.' * (_BAR - full)}] {int(done * 100):3} %  "


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
