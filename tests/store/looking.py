"""Ticks of `reap` over one ledger at times of a test's own, without doing what they find."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from store.database import Database
from store.due import all_scopes, due_for_reap
from store.guards import UNGUARDED, Guards
from store.next_due import Retention, due_by_now
from store.retention import RetentionPolicy
from tests.store.stores import NOW

MINUTE = 60_000
HOUR = 60 * MINUTE
PolicyOf = Callable[[str], RetentionPolicy | None]


class Worker:
    """A worker with a policy file; its ticks find what is due under it."""

    def __init__(
        self,
        database: Database,
        policy: RetentionPolicy | PolicyOf,
        digest: str = "",
        guards: Guards = UNGUARDED,
    ) -> None:
        self.database = database
        self._policy = policy
        self._digest = digest or str(policy)
        self._guards = guards

    def tick(self, now: int, *, chunks_of_all: int = 1_000_000) -> list[str]:
        """What a tick at that time finds, after so many chunks of a look at all scopes at most."""
        left = iter(range(chunks_of_all))
        retention = Retention(self._policies, self._digest)
        groups = due_by_now(
            self.database, retention, now, self._guards, lambda: next(left, None) is None
        )
        return [scope for found in groups for scope in found]

    def begin(self, now: int) -> Iterator[list[str]]:
        """A tick that has just noted where rows settled; the iterator goes on with it."""
        retention = Retention(self._policies, self._digest)
        groups = due_by_now(self.database, retention, now, self._guards, lambda: False)
        first = next(groups, None)
        return groups if first is None else chain([first], groups)

    def begin_and_die(self, now: int) -> None:
        """A tick that ends as soon as it has found something, before that was handed out."""
        self.begin(now)

    def everywhere(self, now: int) -> list[str]:
        """What a look at every scope finds, without a memory of any other."""
        found: list[str] = []
        for scopes in all_scopes(self.database):
            with self.database.transaction(read_only=True) as tx:
                found += due_for_reap(tx, self._policies(scopes), now, self._guards)
        return found

    def _policies(self, scopes: Sequence[str]) -> list[tuple[str, RetentionPolicy]]:
        named = ((s, self._policy(s) if callable(self._policy) else self._policy) for s in scopes)
        return [(scope, policy) for scope, policy in named if policy is not None]


def noted(database: Database) -> dict[str, int]:
    """When each scope is to be looked at next, less NOW."""
    with database.transaction(read_only=True) as tx:
        rows = tx._connection.execute(
            "select scope, next_due from maintenance.scope_next_due"
        ).fetchall()
    return {row["scope"]: row["next_due"] - NOW for row in rows}
