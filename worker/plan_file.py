"""The file that holds a plan: a header, a line for each row, and a digest over all of it.

It is JSON, a line each. It is written beside its place and renamed there once it is whole, so that
no half of a plan is ever found. It is read twice: first to see that every line is as it should be
and that nobody has changed any, then in pieces, each of which must still be what was seen.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final

from config.errors import ConfigError, shown
from store.errors import InvalidRecord
from store.plans import PlannedRow
from store.records import check_integer, check_text

FORMAT: Final = "sema-maintenance plan"
VERSION: Final = 1
# WHY so much: an index holds keys that are much longer than its entries, where they can be packed.
_LINE_BYTES_MAX: Final = 1024 * 1024
_HEADER_BYTES_MAX: Final = 16 * 1024 * 1024
# How many rows are in memory at once, and are one part of a run.
PIECE_ROWS: Final = 10_000
_ROW: Final = ("scope", "handle", "spawned_at", "rev", "reason")
_RELEASE: Final = ("scope", "handle", "entry", "session_id", "reason")
_REMEDY: Final = "nothing was done; make a new plan"


class PlanRefused(ConfigError):
    """The file is no plan, not a whole one, or was changed since it was written."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a plan is for. `scopes` None: all; `planned_at` is the database's time.

    `policy` holds the arms as the policy file words them; `from_flags`: they were given by hand.
    `ledger` is its identity and its schema; `worker` the release that planned.
    """

    job: str
    scopes: list[str] | None
    policy: dict[str, Any]
    from_flags: bool
    overrides: list[str]
    planned_at: int
    ledger: str
    ledger_schema: str
    release_backend: str
    worker: str


_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "job": (str,),
    "scopes": (list, type(None)),
    "policy": (dict,),
    "from_flags": (bool,),
    "overrides": (list,),
    "planned_at": (int,),
    "ledger": (str,),
    "ledger_schema": (str,),
    "release_backend": (str,),
    "worker": (str,),
}


def _line(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(", ", ": ")).encode() + b"\n"


def _row_line(row: PlannedRow) -> bytes:
    names = _ROW if row.entry is None else _RELEASE
    return _line({name: getattr(row, name) for name in names})


@dataclass(frozen=True, slots=True)
class Written:
    """How many rows a plan has, and its digest."""

    rows: int
    digest: str


def write(path: Path, header: Header, rows: Iterable[PlannedRow], *, overwrite: bool) -> Written:
    """Write a plan, readable by its owner alone. Raises PlanRefused where it has no place."""
    refuse_existing(path, overwrite=overwrite)
    digest, count = sha256(), 0
    # WHY no name of its own: the plan's may be as long as a name can be.
    number, temporary = tempfile.mkstemp(prefix=".plan-", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:

            def put(line: bytes) -> None:
                digest.update(line)
                file.write(line)

            said = {name: getattr(header, name) for name in _TYPES}
            put(_line({"format": FORMAT, "version": VERSION, **said}))
            for row in rows:
                line = _row_line(row)
                if len(line) > _LINE_BYTES_MAX:
                    raise PlanRefused(
                        f"a row of scope {shown(row.scope)} has names of more than "
                        f"{_LINE_BYTES_MAX} bytes, which no plan holds; leave the scope out."
                    )
                put(line)
                count += 1
            file.write(_line({"rows": count, "sha256": digest.hexdigest()}))
            file.flush()
            os.fsync(file.fileno())
        _put_in_place(temporary, path, overwrite=overwrite)
    finally:
        with suppress(FileNotFoundError):
            Path(temporary).unlink()
    return Written(count, digest.hexdigest())


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raise PlanRefused where no plan can be put there."""
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else "is in a folder that is not there"
        raise PlanRefused(f"{path} {what}; name a file for the plan with -o.")
    if path.exists() and not path.is_file():
        raise PlanRefused(f"{path} is no plain file; name another one for the plan with -o.")
    if path.exists() and not overwrite:
        raise PlanRefused(f"{path} is there already; name another file, or give --force.")


def _put_in_place(temporary: str, path: Path, *, overwrite: bool) -> None:
    if overwrite:
        Path(temporary).replace(path)
    else:
        try:
            # WHY a link: unlike a rename it never takes the place of a file that came meanwhile.
            os.link(temporary, path)
        except FileExistsError:
            refuse_existing(path, overwrite=False)
            raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Where some rows stand in the file, how many, and the digest of their lines."""

    offset: int
    size: int
    rows: int
    digest: bytes


class PlanFile:
    """A plan that was read once from end to end, and found to be whole and as it was written."""

    def __init__(
        self, path: Path, judge: Callable[[Header], Callable[[str], None]] | None = None
    ) -> None:
        """Look it over. Raises PlanRefused, and what `judge` does.

        `judge` is given the header, and gives what is told each scope of the plan once.
        """
        self.path = path
        self._judge = judge
        self._pieces: list[_Piece] = []
        try:
            # WHY a plain one: it is read twice, and a pipe would be waited for.
            if path.exists() and not path.is_file():
                raise PlanRefused(f"{path} is no plain file; write the plan to one and name it.")
            self._file: BinaryIO = path.open("rb")
        except OSError as error:
            raise PlanRefused(f"{path} cannot be read ({error.strerror}); name a plan.") from error
        try:
            self._look_over()
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _refused(self, number: int, what: str) -> PlanRefused:
        return PlanRefused(f"{self.path}: line {number} {what}; {_REMEDY}.")

    def _look_over(self) -> None:
        first = self._file.readline(_HEADER_BYTES_MAX + 1)
        self.header = self._read_header(first)
        see = None if self._judge is None else self._judge(self.header)
        whole, piece = sha256(first), sha256()
        offset = start = len(first)
        rows = in_piece = 0
        before: PlannedRow | None = None
        while True:
            number = rows + 2
            line = self._file.readline(_LINE_BYTES_MAX + 1)
            if not line:
                raise self._refused(number, "is missing, so that this is not the whole plan")
            document = self._parse(number, line)
            if "sha256" in document:
                break
            row = self._row(number, document)
            if before is not None and row.key <= before.key:
                what = "is there twice" if row.key == before.key else "is out of order"
                raise self._refused(number, what)
            if before is None or before.scope != row.scope:
                if self.header.scopes is not None and row.scope not in self.header.scopes:
                    raise self._refused(number, "is of a scope that the plan was not made for")
                if see is not None:
                    see(row.scope)
            before = row
            whole.update(line)
            piece.update(line)
            offset += len(line)
            rows, in_piece = rows + 1, in_piece + 1
            if in_piece == PIECE_ROWS:
                self._pieces.append(_Piece(start, offset - start, in_piece, piece.digest()))
                start, in_piece, piece = offset, 0, sha256()
        if in_piece:
            self._pieces.append(_Piece(start, offset - start, in_piece, piece.digest()))
        self.rows, self.digest = rows, whole.hexdigest()
        if self._file.read(1):
            raise self._refused(number + 1, "comes after the end of the plan")
        if document != {"rows": rows, "sha256": self.digest}:
            raise PlanRefused(
                f"{self.path} was changed since it was written, or is not all of it: its digest is "
                f"not that of its lines; {_REMEDY}."
            )

    def _parse(self, number: int, line: bytes) -> dict[str, Any]:
        if len(line) > _LINE_BYTES_MAX and number > 1:
            raise self._refused(number, f"is longer than {_LINE_BYTES_MAX} bytes")
        if not line.endswith(b"\n"):
            raise self._refused(number, "is cut off, so that this is not the whole plan")
        try:
            document = json.loads(line.decode("utf-8"), object_pairs_hook=_once)
        except (ValueError, RecursionError):
            raise self._refused(number, "is not a line of a plan") from None
        if not isinstance(document, dict):
            raise self._refused(number, "is not a line of a plan")
        return document

    def _read_header(self, line: bytes) -> Header:
        if len(line) > _HEADER_BYTES_MAX:
            raise self._refused(1, f"is longer than {_HEADER_BYTES_MAX} bytes")
        try:
            found = self._parse(1, line)
        except PlanRefused:
            found = {}
        if found.get("format") != FORMAT:
            raise PlanRefused(f"{self.path} is not a plan of `sema-maintenance plan`; name one.")
        if found.get("version") != VERSION or isinstance(found["version"], bool):
            raise PlanRefused(
                f"{self.path} is a plan of version {shown(found.get('version'))}, and this release "
                f"reads version {VERSION}; make the plan with this release."
            )
        for name, types in _TYPES.items():
            value = found.get(name)
            if name not in found or type(value) not in types:
                raise self._refused(1, f"has no {name} that can be read")
            if isinstance(value, list) and not all(isinstance(each, str) for each in value):
                raise self._refused(1, f"has no {name} that can be read")
        try:
            for name in ("job", "ledger", "ledger_schema", "release_backend", "worker"):
                check_text(name, found[name])
            for scope in found["scopes"] or ():
                check_text("scope", scope, empty=False)
        except InvalidRecord as error:
            raise self._refused(1, f"cannot be used: {error}") from None
        if unknown := set(found) - {*_TYPES, "format", "version"}:
            raise self._refused(1, f"says {shown(min(unknown))}, which no plan does")
        return Header(**{name: found[name] for name in _TYPES})

    def _row(self, number: int, found: dict[str, Any]) -> PlannedRow:
        names = _RELEASE if self.header.job == "release_sessions" else _ROW
        if set(found) != {*names}:
            raise self._refused(number, f"does not have the members {', '.join(names)}")
        try:
            for name in ("scope", "handle", "reason", "session_id"):
                if name in names:
                    check_text(name, found[name])
            for name in ("spawned_at", "rev", "entry"):
                if name in names:
                    check_integer(name, found[name])
        except InvalidRecord as error:
            raise self._refused(number, f"cannot be used: {error}") from None
        return PlannedRow(**{"spawned_at": None, "rev": None, **found})

    def pieces(self) -> Iterator[list[PlannedRow]]:
        """The rows, some at a time. Raises PlanRefused where the file was changed meanwhile."""
        number = 2
        for piece in self._pieces:
            self._file.seek(piece.offset)
            lines = self._file.read(piece.size)
            if sha256(lines).digest() != piece.digest:
                raise PlanRefused(
                    f"{self.path} was changed while it was applied; what was done by then is in "
                    "the history; make a new plan."
                )
            rows = []
            for line in lines.split(b"\n")[:-1]:
                rows.append(self._row(number, self._parse(number, line + b"\n")))
                number += 1
            yield rows


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object no member of which is there twice."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is there twice")
    return members
