"""Holds: what is held is not deleted by anybody, until the hold is released or over.

A hold lies on a whole scope or on one row, whether the row is there or not; several may lie on one.
Whoever deletes shares the holds' lock until its transaction ends, and only then asks what is held.
Whoever places a hold takes the lock alone, writes and commits. So when a placing has returned,
every delete that had begun without knowing of the hold is over, and every later one sees it.
Releasing takes no lock: who does not know of it yet leaves alone a little more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from psycopg import errors as pg
from psycopg.rows import DictRow

from store.database import Database, Transaction
from store.errors import InvalidHold, InvalidRecord, NoSuchHold, StoreUnavailable, TimedOut
from store.records import KEY_BYTES_MAX, check_key, check_text

# The cause under which is counted what a hold keeps.
HOLD: Final = "hold"
REASON_CHARS_MAX: Final = 500
# How often a delete asks for the lock, a tenth of a second apart. WHY more than a placing may wait:
# so that none fails because somebody else gave a placing up.
_LOOKS: Final = 900
_MS: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Hold:
    """One hold. `handle` None: on the whole scope. Times are milliseconds since the Unix epoch.

    `ends_at` None: until it is released. `in_force`: it was, when it was read.
    """

    id: int
    scope: str
    handle: str | None
    reason: str
    placed_by: str
    placed_at: int
    ends_at: int | None
    released_by: str | None
    released_at: int | None
    in_force: bool


@dataclass(frozen=True, slots=True)
class InForce:
    """What is held in some scopes at `at`, by the database's clock; None: nothing is.

    `scopes` are held as a whole; `rows`: some rows are held one by one.
    """

    at: int | None = None
    scopes: frozenset[str] = frozenset()
    rows: bool = False

    def params(self) -> dict[str, Any]:
        """What the fragment held_row asks for."""
        return {"held_at": self.at, "rows_held": self.rows}


NOTHING_HELD: Final = InForce()


def share(tx: Transaction) -> None:
    """Let nobody place a hold until this transaction ends, before anything is deleted in it.

    What is asked of holds afterwards covers each that anybody was told is placed. Waits for a
    placing under way. Raises StoreUnavailable.
    """
    for _ in range(_LOOKS):
        [row] = tx.rows("share_holds")
        if row["shared"]:
            return
        tx.rows("wait_a_moment")
    raise StoreUnavailable(
        "another session keeps the lock of the holds, so that nothing may be deleted; "
        "end the session that has it, or try again later"
    )


def in_force(tx: Transaction, scopes: Sequence[str]) -> InForce:
    """What is held in these scopes."""
    # WHY first whether anything is held anywhere: ordinarily that is all there is to ask.
    if (moment := tx.one("any_hold", {"held_at": None})) is None:
        return NOTHING_HELD
    rows = tx.rows("held_scopes", {"scopes": [*scopes], **moment})
    if not rows:
        return NOTHING_HELD
    return InForce(
        moment["held_at"],
        frozenset(row["scope"] for row in rows if row["whole"]),
        any(row["rows"] for row in rows),
    )


def over_entries(tx: Transaction) -> dict[str, Any]:
    """What the fragment held_entry asks for: whether anything is held anywhere, and when."""
    moment = tx.one("any_hold", {"held_at": None})
    return {"anything_held": moment is not None, **(moment or {"held_at": None})}


def held_by(tx: Transaction, scope: str, handle: str) -> str | None:
    """Why the row must not be deleted, as a sentence; None: neither it nor its scope is held."""
    row = tx.one("hold_on_row", {"scope": scope, "handle": handle, "held_at": None})
    if row is None:
        return None
    what = "its scope" if row["handle"] is None else "it"
    return f"{scope!r} keeps its agent {handle!r}: {_lies_on(row, what)}"


def transcript_held_by(tx: Transaction, scope: str, session_id: str) -> str | None:
    """Why the transcript must not be deleted, as a sentence; None: nothing that it is of is held.

    It is of its scope, of every row that names it, and of the deleted rows it waits to go after.
    """
    asked = {"scope": scope, "session_id": session_id, "held_at": None}
    row = tx.one("hold_on_session", asked)
    if row is None:
        return None
    what = "its scope" if row["handle"] is None else f"its agent {row['handle']!r}"
    return f"{scope!r} keeps its transcript {session_id!r}: {_lies_on(row, what)}"


def _lies_on(row: DictRow, what: str) -> str:
    return (
        f"hold {row['id']} lies on {what}, placed by {row['placed_by']} ({row['reason']}); "
        "release the hold first"
    )


def place(
    database: Database,
    scope: str,
    handle: str | None,
    reason: str,
    by: str,
    until: timedelta | datetime | None = None,
) -> Hold:
    """Place a hold; when this has returned, nothing that it covers is deleted while it is in force.

    `handle` None: on the whole scope. `until`: a span from now, or a time; None: until released.
    Waits for the batches of deletions in hand. Raises InvalidHold, and TimedOut where one of them
    lasts too long: then nothing is held.
    """
    _check(scope, handle, reason)
    with database.transaction() as tx:
        alone(tx, "nothing was placed")
        return add(tx, scope, handle, reason, by, until)


def alone(tx: Transaction, otherwise: str) -> None:
    """Have the holds' lock alone until this transaction ends; nobody deletes anything meanwhile.

    `otherwise` says what was not done where a deletion does not end. Raises TimedOut.
    """
    tx.rows("hold_patience")
    try:
        tx.rows("lock_holds")
    except (pg.LockNotAvailable, pg.QueryCanceled) as error:
        raise TimedOut(
            f"{otherwise}: a batch of deletions did not end in time; try again"
        ) from error


def add(
    tx: Transaction,
    scope: str,
    handle: str | None,
    reason: str,
    by: str,
    until: timedelta | datetime | None = None,
) -> Hold:
    """Place a hold in a transaction that has the holds' lock alone. Raises InvalidHold."""
    params = {
        "scope": scope,
        "handle": handle,
        "reason": reason,
        "by": by,
        "ends_at": (until - _EPOCH) // _MS if isinstance(until, datetime) else None,
        "lasts_ms": until // _MS if isinstance(until, timedelta) else None,
    }
    row = tx.one("hold_add", params)
    if row is None:
        raise InvalidHold("until", "is not in the future by the database's clock")
    return Hold(**row)


def _check(scope: str, handle: str | None, reason: str) -> None:
    """Raise InvalidHold for what no row could be named by, and for a reason that says nothing."""
    if not scope:
        raise InvalidHold("scope", "cannot be empty")
    if handle == "":
        raise InvalidHold("handle", "cannot be empty; leave it out to hold the whole scope")
    if not reason.strip():
        raise InvalidHold("reason", "cannot be empty; say why this is to be kept, and for whom")
    if problem := too_long(reason):
        raise InvalidHold("reason", problem)
    try:
        for member, text in (("scope", scope), ("handle", handle or ""), ("reason", reason)):
            check_text(member, text)
        check_key(scope, "handle", handle or "")
    except InvalidRecord as error:
        if handle is None and error.member == "handle":
            size = len(scope.encode())
            raise InvalidHold(
                "scope", f"is {size} bytes; an index holds {KEY_BYTES_MAX}"
            ) from error
        raise InvalidHold(error.member, str(error).removeprefix(f"{error.member} ")) from error


def too_long(reason: str) -> str | None:
    """What is wrong with a reason, of a hold or of a pause, that is no sentence; None: nothing."""
    if len(reason) <= REASON_CHARS_MAX:
        return None
    return f"has {len(reason)} characters; {REASON_CHARS_MAX} are the limit"


def release(database: Database, number: int, by: str, reason: str | None = None) -> Hold:
    """Release a hold. Raises NoSuchHold where there is none of this number in force."""
    params = {"id": number, "by": by, "reason": reason, "held_at": None}
    with database.transaction() as tx:
        row = tx.one("hold_release", params)
        if row is None:
            raise NoSuchHold(_why_not(number, tx.one("hold_get", params)))
    return Hold(**row)


def _why_not(number: int, found: Any) -> str:
    if found is None:
        return f"there is no hold {number}; `holds list` shows those in force"
    if found["released_at"] is None:
        return f"hold {number} is over by itself since {when(found['ends_at'])}"
    at = when(found["released_at"])
    return f"hold {number} was released by {found['released_by']} at {at}"


def when(at_ms: int) -> str:
    """A time for a person, in UTC; milliseconds where no calendar has it."""
    try:
        return f"{_EPOCH + at_ms * _MS:%Y-%m-%d %H:%M:%S} UTC"
    except OverflowError:
        return f"{at_ms} ms"


def list_holds(database: Database, scope: str | None, limit: int, *, over_too: bool) -> list[Hold]:
    """The newest holds in force, or also those over, of one scope and its rows or of all."""
    params = {"scope": scope, "limit": limit, "over_too": over_too, "held_at": None}
    with database.transaction(read_only=True) as tx:
        return [Hold(**row) for row in tx.rows("list_holds", params)]


def is_there(database: Database, scope: str, handle: str | None) -> bool:
    """Whether there is such a row; `handle` None: any of the scope."""
    with database.transaction(read_only=True) as tx:
        if handle is None:
            return not tx.rows("scopes_without_rows", {"scopes": [scope]})
        return tx.one("agent_get", {"scope": scope, "handle": handle}) is not None
