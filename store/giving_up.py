"""Where a run gives a scope up, and how the next one still gets to what is behind it.

The next run begins behind the row at which the scope was given up, and when it is through it goes
back to the first and on to that row: whatever fails, each row has its turn within a bounded number
of runs, none has two in one, and a scope still counts as failing while it has a failing row. A
later turn of the same run leaves the scope alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Generic, TypeVar, cast
from uuid import UUID

from store.batches import NO_RUN, Place
from store.database import Transaction

_Place = TypeVar("_Place", bound=Place)
# What a key that a place is behind is called in it; `stop_`: the last key that it meets.
_AFTER: Final = "after_"


@dataclass(frozen=True, slots=True)
class Noted:
    """What the turn of a run that gave a scope up had counted there, for the run's later turns.

    `skipped` has by cause the rows that its kind of batches passed over; `rows` are the handles of
    those that fail, whatever kind met them.
    """

    skipped: Mapping[str, int]
    rows: Collection[str]


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A scope in which not all could be done, and how far each kind of batches had come then.

    `afters` is as it stands in the row, written by whatever release.
    """

    error: str
    afters: Mapping[str, object]

    def after(self, kind: str) -> Mapping[str, object]:
        """The place of this kind; empty if it has none."""
        return _members(self.afters.get(kind))

    def by(self, kind: str, run_id: UUID) -> Noted | None:
        """What this run has noted, if it gave the scope up in a turn before."""
        noted = _members(self.afters.get(_run_of(kind)))
        if noted.get("run_id") != str(run_id):
            return None
        skipped, rows = _members(noted.get("skipped")), noted.get("rows")
        return Noted(
            {cause: n for cause, n in skipped.items() if isinstance(n, int)},
            [row for row in rows if isinstance(row, str)] if isinstance(rows, list) else [],
        )


def _run_of(kind: str) -> str:
    return f"{kind} given up by"


def _members(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


@dataclass(slots=True)
class Course(Generic[_Place]):
    """One kind of batches on its way through the scopes: `failing` counts the rows it could not do.

    `first` has what is in front of where it began, if that is not the first place; `left` are the
    scopes that this run has given up before, and what it noted then.
    """

    kind: str
    failing: Counter[str] = field(default_factory=Counter)
    first: dict[str, _Place] = field(default_factory=dict)
    left: dict[str, Noted] = field(default_factory=dict)

    def begin(
        self, places: Iterable[_Place], given_up: Mapping[str, GivenUp], run_id: UUID
    ) -> list[_Place]:
        """Where to begin in each scope, if the last run gave it up there."""
        begun: list[_Place] = []
        for place in places:
            known = given_up.get(place.scope)
            if known is None:
                begun.append(place)
            elif (noted := known.by(self.kind, run_id)) is not None:
                self.left[place.scope] = noted
            else:
                begun.append(self._begin(place, known.after(self.kind)))
        return begun

    def _begin(self, place: _Place, after: Mapping[str, object]) -> _Place:
        first = _after(place)
        # WHY by name and type: JSON keeps no order of members, and another release may have others.
        if {n: type(v) for n, v in after.items()} != {n: type(v) for n, v in first.items()}:
            return place
        # WHY compared: what is before the first place is none of this run's.
        if [cast("Any", after[name]) for name in first] <= [*first.values()]:
            return place
        stops = {f"stop_{name.removeprefix(_AFTER)}": value for name, value in after.items()}
        self.first[place.scope] = cast("_Place", replace(cast("Any", place), **stops))
        return cast("_Place", replace(cast("Any", place), **after))

    def back(self, ended: Collection[str]) -> list[_Place]:
        """What is in front of where the scopes that are through began: from the first place on."""
        return [self.first.pop(scope) for scope in ended if scope in self.first]

    def remember(
        self,
        tx: Transaction,
        job: str,
        stamped: Mapping[str, Any],
        place: _Place,
        error: str,
        noted: Noted,
    ) -> None:
        """Let the next run begin at this place. A function called directly has no next run."""
        if stamped["run_id"] == NO_RUN:
            return
        by = {
            "run_id": str(stamped["run_id"]),
            "skipped": {**noted.skipped},
            "rows": [*noted.rows],
        }
        after = json.dumps({self.kind: _after(place), _run_of(self.kind): by})
        params = {"job": job, "scope": place.scope, "error": error, "after": after}
        tx.do("give_up_scope", {**stamped, **params})


def _after(place: Place) -> dict[str, Any]:
    """The key that a place is behind: all its members of that name, in order."""
    names = (f.name for f in fields(cast("Any", place)) if f.name.startswith(_AFTER))
    return {name: getattr(place, name) for name in names}
