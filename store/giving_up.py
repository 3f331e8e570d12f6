"""Where a run gives a scope up, and how the next one still gets to what is behind it.

The next run begins behind the row at which the scope was given up, and when it is through it goes
back to the first: whatever fails, each row has its turn within a bounded number of runs, and a
scope still counts as failing while it has a failing row.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, TypeVar, cast

from store.batches import NO_RUN, Place
from store.database import Transaction

_Place = TypeVar("_Place", bound=Place)

# How far each kind of batches had come in a scope that it gave up.
Afters = Mapping[str, Mapping[str, Any]]


@dataclass(slots=True)
class Course(Generic[_Place]):
    """One kind of batches on its way through the scopes: `failing` counts the rows it could not do.

    `first` has the first place of those scopes that it began further behind.
    """

    kind: str
    failing: Counter[str] = field(default_factory=Counter)
    first: dict[str, _Place] = field(default_factory=dict)

    def begin(self, places: Iterable[_Place], given_up: Mapping[str, Afters]) -> list[_Place]:
        """Where to begin in each scope, if the last run gave it up there."""
        return [self._begin(place, given_up.get(place.scope, {})) for place in places]

    def _begin(self, place: _Place, afters: Afters) -> _Place:
        after, first = afters.get(self.kind), _after(place)
        # WHY compared: what is before the first place is none of this run's.
        if not after or after.keys() != first.keys() or [*after.values()] <= [*first.values()]:
            return place
        self.first[place.scope] = place
        return cast("_Place", replace(cast("Any", place), **after))

    def back(self, ended: Collection[str]) -> list[_Place]:
        """The first places of the scopes that are through, where they did not begin at them."""
        return [self.first.pop(scope) for scope in ended if scope in self.first]

    def remember(
        self, tx: Transaction, job: str, stamped: Mapping[str, Any], place: _Place, error: str
    ) -> None:
        """Let the next run begin at this place. A function called directly has no next run."""
        if stamped["run_id"] == NO_RUN:
            return
        params = {"job": job, "scope": place.scope, "kind": self.kind, "error": error}
        tx.do("give_up_scope", {**stamped, **params, "after": json.dumps(_after(place))})


def _after(place: Place) -> dict[str, Any]:
    """The key that a place is behind: all its members of that name, in order."""
    names = (f.name for f in fields(cast("Any", place)) if f.name.startswith("after_"))
    return {name: getattr(place, name) for name in names}
