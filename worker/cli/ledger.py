"""The ledger as JSON lines: in from a file, out to a file."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from worker.cli import options, show
from worker.cli.failures import DONE, FAILED, say
from worker.cli.target import BetweenBatches, ledger
from worker.wording import counted

if TYPE_CHECKING:
    from store.ledger_io import Refused
    from store.ledger_lines import Kind

# How many refused lines are told one by one, and how many kinds are counted apart.
_TOLD = 10
_KINDS_MAX = 50
_OTHERS = "other"
_NOUNS = {"agent": "agents", "checkpoint": "checkpoints", "session": "transcripts"}


@click.command(
    "import",
    epilog="Example: sema-maintenance import examples/ledger.jsonl",
    short_help="Store a ledger's JSON lines.",
)
@click.argument("file", type=click.File("rb"))
@click.option("--stop-on-error", is_flag=True, help="Store nothing after the first refused line.")
@click.option("--verbose", is_flag=True, help="Tell of every refused line, not only the first ten.")
@options.as_json
def import_(file: BinaryIO, stop_on_error: bool, verbose: bool, as_json: bool) -> int:
    """Store a ledger's JSON lines from FILE, or - for standard input.

    A line is an agent's bare record, {"checkpoint": {...}} or {"session": {...}}. A line that
    cannot be stored is named with its problem and left out; so is one whose row is there already,
    which stays as it is. After the first ten such lines they are only counted, by kind. The exit
    code is 1 if any line was left out.
    """
    from store.errors import StoreError
    from store.ledger_io import import_lines
    from store.needs import IMPORT
    from store.next_due import look_again

    name = show.printable(str(file.name)) if file is not sys.stdin.buffer else "-"
    stored: Counter[str] = Counter()
    refusals = Refusals(name, verbose=verbose)
    read = 0
    with (
        ledger(IMPORT) as process,
        BetweenBatches() as between,
        show.progress(
            lambda: f"{counted(read, 'line')} read, {refusals.number} refused",
            lambda: _share_read(file),
        ),
    ):
        try:
            given = between.waiting(_lines(file))
            for batch in import_lines(process.database, given, stop_on_error=stop_on_error):
                stored.update(batch.stored)
                read += batch.read
                for line in batch.refused:
                    refusals.tell(line)
                between.counted()
        except (StoreError, KeyboardInterrupt):
            say(f"{name}: of the first {read} lines {_worded(stored)} are stored; import it again")
            raise
        finally:
            refusals.sum_up()
            # WHY suppressed: they are found within the hour even so.
            with suppress(StoreError):
                look_again(process.database)
    if as_json:
        counts = {noun: stored[kind] for kind, noun in _NOUNS.items()}
        by_kind = dict(refusals.by_kind.most_common())
        said = {"refused": refusals.number, "refused_by_kind": by_kind}
        show.document({"file": name, "stored": counts, **said})
    else:
        click.echo(f"stored {_worded(stored)}; lines refused: {refusals.number}")
    return FAILED if refusals.number else DONE


class Refusals:
    """Tells of the first refused lines, and counts all of them by what is wrong with them."""

    def __init__(self, name: str, *, verbose: bool) -> None:
        self._name = name
        self._told = None if verbose else _TOLD
        self.number = 0
        self.by_kind: Counter[str] = Counter()

    def tell(self, line: Refused) -> None:
        """Count a line, and say what is wrong with it where that is not said too often by now."""
        self.number += 1
        known = line.kind in self.by_kind or len(self.by_kind) < _KINDS_MAX
        self.by_kind[line.kind if known else _OTHERS] += 1
        if self._told is None or self.number <= self._told:
            say(f"{self._name}:{line.number}: {line.problem}")

    def sum_up(self) -> None:
        """Say how many there were of each kind, where not all were told."""
        if self._told is None or self.number <= self._told:
            return
        say(
            f"{self._name}: {counted(self.number, 'line')} refused in all; --verbose tells of each:"
        )
        for kind, number in self.by_kind.most_common():
            say(f"  {number}: {kind}")


def _share_read(file: BinaryIO) -> float | None:
    """How much of a file is read; None where it has no end that is known."""
    with suppress(OSError, ValueError):
        size = os.fstat(file.fileno()).st_size
        return file.tell() / size if size and file.seekable() else None
    return None


def _worded(stored: Mapping[str, int]) -> str:
    return ", ".join(f"{stored.get(kind, 0)} {noun}" for kind, noun in _NOUNS.items())


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, no more of any than is needed to refuse it as too long."""
    from store.ledger_lines import LINE_BYTES_MAX

    while line := file.readline(LINE_BYTES_MAX + 1):
        rest = line
        while len(rest) > LINE_BYTES_MAX and not rest.endswith(b"\n"):
            rest = file.readline(LINE_BYTES_MAX + 1)
        yield line


@click.command(
    epilog="Example: sema-maintenance export --scope tenant/acme -o acme.jsonl",
    short_help="Write the ledger as JSON lines.",
)
@options.scopes("Only this scope.")
@click.option("--with-checkpoints", is_flag=True, help="The approval checkpoints too.")
@click.option("--with-sessions", is_flag=True, help="The transcripts too.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write to FILE, which appears only once it is whole.",
)
def export(
    scopes: tuple[str, ...], with_checkpoints: bool, with_sessions: bool, output: Path | None
) -> int:
    """Write the ledger as JSON lines, all of one instant, as import reads them."""
    from store.needs import reading

    kinds: list[Kind] = ["agent"]
    tables = ["background_agents"]
    if with_checkpoints:
        kinds.append("checkpoint")
        tables.append("checkpoints")
    if with_sessions:
        kinds.append("session")
        tables.append("agent_sessions")
    with ledger(reading(*tables)) as process, _written(output) as file:
        from store.ledger_io import export_lines

        lines = export_lines(process.database, tuple(dict.fromkeys(scopes)) or None, kinds)
        written = _write(file, lines)
    say(f"{counted(written, 'line')} written")
    return DONE


def _write(file: BinaryIO, lines: Iterator[str]) -> int:
    written = 0
    with show.progress(lambda: f"{counted(written, 'line')} written"):
        for line in lines:
            file.write(line.encode() + b"\n")
            written += 1
        file.flush()
    return written


@contextmanager
def _written(output: Path | None) -> Iterator[BinaryIO]:
    """Where the lines go. A file gets its name only once it is whole."""
    if output is None or str(output) == "-":
        yield sys.stdout.buffer
        return
    target = output.resolve()
    try:
        if target.exists() and not target.is_file():
            # WHY not renamed: the name is a pipe or a device, which somebody else made.
            with target.open("wb") as file:
                yield file
            return
        partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
        try:
            # WHY its owner's alone: agents and transcripts are what tenants wrote.
            own = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(own, "wb") as file:
                yield file
                os.fsync(file.fileno())
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise click.FileError(str(output), error.strerror) from error
