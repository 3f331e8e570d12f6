"""What the driver reports becomes an error of the store, with one line that says what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from psycopg import errors as pg

from store.errors import StatementFailed, StoreError, StoreUnavailable, StoreUnusable, TimedOut
from store.statements import OWN_SCHEMA

# As Postgres names what is in the schema of the worker's own tables, in any language.
_OWN: Final = re.compile(rf"(?<![\w.]){OWN_SCHEMA}(?!\w)")

_REPORTED: Final = "Postgres reported: {line}"
_NOT_MIGRATED: Final = (
    "the worker's own tables are missing or older than this release ({line}); run "
    "`sema-maintenance migrate`"
)
# A statement asks for what is not there. Of a relation the report names the schema, of the others
# it does not.
_NO_RELATION: Final = (pg.UndefinedTable, pg.InvalidSchemaName)
_OTHER_SHAPE: Final = (
    pg.UndefinedColumn,
    pg.DatatypeMismatch,
    pg.UndefinedFunction,
    pg.InvalidColumnReference,
)
# What the driver reports, most specific first: the error it becomes, and the sentence for a person.
_TRANSLATIONS: Final[tuple[tuple[tuple[type[Exception], ...], type[StoreError], str], ...]] = (
    (
        (pg.LockNotAvailable,),
        TimedOut,
        "a row stayed locked by another session; try again later",
    ),
    ((pg.QueryCanceled,), TimedOut, "a statement was given up: {line}"),
    (
        (pg.ReadOnlySqlTransaction,),
        StoreUnusable,
        "the database is read-only (a standby?); name the primary in MAINT_DATABASE_URL",
    ),
    ((pg.InsufficientPrivilege,), StoreUnusable, "a privilege is missing: {line}"),
    (
        _NO_RELATION,
        StoreUnusable,
        "the ledger lacks a table: {line}; check MAINT_DATABASE_URL and MAINT_LEDGER_SCHEMA",
    ),
    (
        _OTHER_SHAPE,
        StoreUnusable,
        "the ledger has another shape than expected: {line}",
    ),
    (
        (pg.DeadlockDetected, pg.SerializationFailure),
        TimedOut,
        "another session came first: {line}",
    ),
    (
        (UnicodeEncodeError,),
        StoreError,
        "a value holds half of a surrogate pair, which no row can",
    ),
    ((pg.DataError,), StoreError, "Postgres refused a value: {line}"),
    ((pg.IntegrityError,), StoreError, "Postgres refused a row: {line}"),
    ((psycopg.OperationalError,), StoreUnavailable, "the database does not answer: {line}"),
    ((psycopg.Error,), StoreError, _REPORTED),
)


# The server has no room left for anybody: no space on its disk, or no connections.
_FOR_EVERYBODY: Final = frozenset({"53100", "53300"})


@contextmanager
def translated(
    alive: Callable[[], bool] = lambda: False, behind: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Turn the driver's errors into the store's, with one line that says what to do.

    `alive`: whether the connection outlived the error. WHY asked: any code may come from one row,
    by its size or by a trigger, and what ends a connection does not always say so by its code.
    `behind`: whether the worker's own tables are older than the release. WHY asked: a report of a
    missing column does not say in whose table.
    """
    try:
        yield
    except (psycopg.Error, UnicodeEncodeError) as error:
        if _is_not_migrated(error, behind):
            raise StoreUnusable(_NOT_MIGRATED.replace("{line}", line_of(error))) from error
        for types, becomes, sentence in _TRANSLATIONS:
            if isinstance(error, types):
                if becomes is StoreUnavailable and _of_a_statement(error) and alive():
                    raise StatementFailed(reported(error)) from error
                raise becomes(sentence.replace("{line}", line_of(error))) from error
        raise


def is_forbidden(error: StoreError) -> bool:
    """Whether the database has refused it to this role."""
    return isinstance(error.__cause__, pg.InsufficientPrivilege)


def reported(error: BaseException | None) -> str:
    """What Postgres said, as it is, without what it mostly means."""
    return _REPORTED.replace("{line}", line_of(error)) if isinstance(error, Exception) else ""


def _of_a_statement(error: Exception) -> bool:
    """Whether the server said this of what it was asked, and not of itself."""
    return (
        isinstance(error, psycopg.Error)
        and error.sqlstate is not None
        and error.sqlstate not in _FOR_EVERYBODY
        and error.diag.severity_nonlocalized not in {"FATAL", "PANIC"}
    )


def _is_not_migrated(error: Exception, behind: Callable[[], bool]) -> bool:
    """Whether a statement failed because the worker's own tables are not this release's."""
    if isinstance(error, pg.CheckViolation):
        return error.diag.schema_name == OWN_SCHEMA and behind()
    if isinstance(error, _NO_RELATION):
        return _OWN.search(line_of(error)) is not None
    return isinstance(error, _OTHER_SHAPE) and behind()


def line_of(error: Exception) -> str:
    """The first line of what Postgres said; it names no values and no passwords."""
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    text = primary or str(error)
    line = text.strip().splitlines()[0] if text.strip() else type(error).__name__
    return line.removeprefix("connection failed: ")
