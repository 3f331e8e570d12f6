"""Read a ledger from JSON lines into the database and write it out again, in flat memory.

What goes in is checked line by line first and then stored batch by batch, each in one transaction.
The content is taken from the line's own text and written out from the column's, never through the
numbers of this language, so that a number keeps every digit it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from store.database import Database, Transaction
from store.errors import InvalidRecord, StoreError, StoreUnavailable, StoreUnusable
from store.ledger_lines import MEMBERS, Kind, Line, parse_line

_LINES_MAX: Final = 500
_TEXT_MAX: Final = 8_000_000  # characters
_ROWS_PER_FETCH: Final = 500
# Kinds of refusals that only the database knows of.
_BY_POSTGRES: Final = "refused by Postgres"
_TAKEN: Final = "there already"

# The order in which they are stored and written out. WHY agents last: a row that is there before
# its checkpoint looks abandoned to a job that runs meanwhile.
ORDER: Final[tuple[Kind, ...]] = ("checkpoint", "session", "agent")
_IMPORT: Final = {
    "checkpoint": "import_checkpoints",
    "session": "import_sessions",
    "agent": "import_agents",
}
_EXPORT: Final = {
    "checkpoint": "export_checkpoints",
    "session": "export_sessions",
    "agent": "export_agents",
}


@dataclass(frozen=True, slots=True)
class Refused:
    """A line of which nothing was stored, and why; `kind` is what it shares with lines like it."""

    number: int
    problem: str
    kind: str


@dataclass(slots=True)
class Batch:
    """What became of some lines that follow one another; `read` counts the blank ones too."""

    read: int = 0
    stored: Counter[Kind] = field(default_factory=Counter)
    refused: list[Refused] = field(default_factory=list)


class _TryHalves(StoreError):
    """One of the lines is refused and nothing after it may be stored: look for it."""


def is_empty(database: Database) -> bool:
    """Whether the ledger holds no agent at all."""
    with database.transaction(read_only=True) as tx:
        row = tx.one("ledger_empty")
    return row is not None and bool(row["empty"])


def import_lines(
    database: Database, lines: Iterable[bytes], *, stop_on_error: bool = False
) -> Iterator[Batch]:
    """Store the lines as rows; yields after each committed batch.

    A line that cannot be stored, and one whose key is taken, is refused and the rest goes on, or
    with `stop_on_error` nothing after it is stored. A taken row is left as it is. Raises
    StoreUnavailable and StoreUnusable; what was yielded before is stored.
    """
    batch, parsed, size = Batch(), [], 0
    for number, raw in enumerate(lines, start=1):
        batch.read += 1
        try:
            line = parse_line(number, raw)
        except InvalidRecord as error:
            batch.refused.append(Refused(number, str(error), error.kind))
        else:
            if line is not None:
                parsed.append(line)
                size += len(line.text)
        stopping = stop_on_error and bool(batch.refused)
        full = len(parsed) + len(batch.refused) >= _LINES_MAX or size >= _TEXT_MAX
        if full or stopping:
            yield _store(database, batch, parsed, stop_on_error=stop_on_error)
            if stop_on_error and batch.refused:
                return
            batch, parsed, size = Batch(), [], 0
    if batch.read:
        yield _store(database, batch, parsed, stop_on_error=stop_on_error)


def load_lines(database: Database, lines: Iterable[str]) -> Counter[Kind]:
    """Store lines of our own making; gives their number by kind. Raises StoreError at the first
    that is refused.
    """
    stored: Counter[Kind] = Counter()
    raw = (line.encode() for line in lines)
    for batch in import_lines(database, raw, stop_on_error=True):
        for refused in batch.refused:
            raise StoreError(f"line {refused.number}: {refused.problem}")
        stored += batch.stored
    return stored


def _store(database: Database, batch: Batch, parsed: list[Line], *, stop_on_error: bool) -> Batch:
    if parsed:
        refused = _insert(database, parsed, stop_on_error=stop_on_error)
        if refused and stop_on_error:
            # An unreadable line further on is not what it stopped at.
            batch.refused.clear()
            parsed = [line for line in parsed if line.number < refused[0].number]
        numbers = {each.number for each in refused}
        batch.stored.update(line.kind for line in parsed if line.number not in numbers)
        batch.refused += refused
        batch.refused.sort(key=lambda each: each.number)
    return batch


def _insert(database: Database, lines: list[Line], *, stop_on_error: bool) -> list[Refused]:
    """Store the lines; gives those that were refused.

    Postgres says of a statement that it failed, not at which row: the halves are then tried.
    """
    try:
        with database.transaction() as tx:
            taken = [line for kind in ORDER for line in _taken(tx, kind, lines)]
            if taken and stop_on_error and len(lines) > 1:
                raise _TryHalves
    except (StoreUnavailable, StoreUnusable):
        raise
    except StoreError as error:
        if len(lines) == 1:
            return [Refused(lines[0].number, str(error), _BY_POSTGRES)]
        half = len(lines) // 2
        refused = _insert(database, lines[:half], stop_on_error=stop_on_error)
        if refused and stop_on_error:
            return refused
        return refused + _insert(database, lines[half:], stop_on_error=stop_on_error)
    return [
        Refused(
            line.number, f"{line.named} is in scope {line.scope!r} already; left as it is", _TAKEN
        )
        for line in taken
    ]


def _taken(tx: Transaction, kind: Kind, lines: list[Line]) -> list[Line]:
    """Insert the lines of one kind; gives those whose key was taken, by an earlier line or row."""
    ours = [line for line in lines if line.kind == kind]
    if not ours:
        return []
    params = {"lines": [line.text for line in ours], "members": list(MEMBERS[kind])}
    free = {(row["scope"], row["key"]) for row in tx.rows(_IMPORT[kind], params)}
    taken = []
    for line in ours:
        if (line.scope, line.key) in free:
            free.remove((line.scope, line.key))
        else:
            taken.append(line)
    return taken


def export_lines(
    database: Database, scopes: Collection[str] | None, kinds: Collection[Kind]
) -> Iterator[str]:
    """The rows of some scopes, or of all, as `import_lines` reads them, without line ends.

    All of one instant, in the order of their keys. Raises StoreError.
    """
    params = {"scopes": None if scopes is None else list(scopes)}
    with database.transaction(read_only=True, snapshot=True) as tx:
        # WHY: whoever reads the lines may take a while, and the limit is meant for writers.
        tx.script("set local idle_in_transaction_session_timeout = '1h'")
        for kind in ORDER:
            if kind in kinds:
                rows = tx.stream(_EXPORT[kind], params, size=_ROWS_PER_FETCH)
                yield from (row["line"] for row in rows)
