"""Random lives of a ledger: what a tick finds is what a look at every scope would find.

Except for what only the hourly look is there for: rows written as settled longer ago than SKEW, and
rows beyond `keep` that never said when they settled.
"""

from collections.abc import Callable
from random import Random

import pytest

from store.agents import PostgresAgentStore
from store.database import Database
from store.next_due import ALL_SCOPES_EVERY, SKEW
from store.retention import RetentionPolicy
from tests.store.looking import HOUR, MINUTE, Worker
from tests.store.stores import NOW, ended

STEPS = 80
SKEW_MS = int(SKEW.total_seconds() * 1000)
EVERY_MS = int(ALL_SCOPES_EVERY.total_seconds() * 1000)
SCOPES = [f"s{n}" for n in range(6)]
POLICIES = {
    "s0": RetentionPolicy(max_age_ms=20 * MINUTE),
    "s1": RetentionPolicy(max_age_ms=HOUR + 0.5),
    "s2": RetentionPolicy(keep=2),
    "s3": RetentionPolicy(max_age_ms=2 * HOUR, keep=3),
    "s4": RetentionPolicy(max_age_ms=0, keep=0),
}


class Life:
    """One ledger over a few hours, and which scopes only the next look at all will find."""

    def __init__(self, database: Database, seed: int, *, odd: bool) -> None:
        self.rows = PostgresAgentStore(database)
        self.random = Random(seed)
        self.now = NOW
        self.hidden: set[str] = set()
        self._number = 0
        self._deeds: list[Callable[[str], None]] = [
            *(3 * [self.settles]), self.goes, self.goes, self.is_revived,
            *([self.is_imported, self.says_no_end] if odd else []),
        ]  # fmt: skip

    def step(self) -> None:
        """Something happens to a row of some scope."""
        self.random.choice(self._deeds)(self.random.choice(SCOPES))

    def settles(self, scope: str) -> None:
        """By a clock that may be off, and in a transaction that may have taken long."""
        off = self.random.randint(-SKEW_MS + 1, SKEW_MS - 1)
        self._put(scope, self.now + self.random.choice((0, 0, off)))

    def is_imported(self, scope: str) -> None:
        """As settled long ago."""
        self._put(scope, self.now - self.random.randint(SKEW_MS, 5 * HOUR))
        self.hidden.add(scope)

    def says_no_end(self, scope: str) -> None:
        """A writer's fault."""
        self._number += 1
        row = ended(f"h{self._number}", scope=scope, settled_at=None, updated_at=self.now)
        self.rows.put(row)
        self.hidden.add(scope)

    def goes(self, scope: str) -> None:
        """Whoever deletes it."""
        for row in self._some(scope):
            self.rows.delete(row, scope)

    def is_revived(self, scope: str) -> None:
        """It is running again, and may settle another time."""
        for handle in self._some(scope):
            row = self.rows.get(handle, scope)
            assert row is not None
            self.rows.delete(handle, scope)
            row.status, row.settled_at, row.updated_at = "running", None, self.now
            self.rows.put(row)

    def _put(self, scope: str, at: int) -> None:
        self._number += 1
        self.rows.put(ended(f"h{self._number}", scope=scope, settled_at=at, updated_at=at))

    def _some(self, scope: str) -> list[str]:
        listed = self.rows.list_by_scope(scope)
        handles = sorted(row.handle for row in listed if row.status != "running")
        return self.random.sample(handles, self.random.randint(0, len(handles)))


@pytest.mark.parametrize("seed", range(4))
def test_tick_finds_what_a_look_at_every_scope_finds(
    plain_ledger: tuple[str, Database], seed: int
) -> None:
    """Exactly that in every second life, in which nothing happens that only an hour makes good."""
    database = plain_ledger[1]
    life = Life(database, seed, odd=seed % 2 == 1)
    worker = Worker(database, POLICIES.get, "a policy by scope")
    looked_at_all: int | None = None
    found_ever: set[str] = set()
    for _ in range(STEPS):
        for _ in range(life.random.randint(0, 3)):
            life.step()
        life.now += life.random.randint(1, 15 * MINUTE)
        if looked_at_all is None or life.now - looked_at_all >= EVERY_MS:
            looked_at_all, life.hidden = life.now, set()

        found = worker.tick(life.now)

        everywhere = set(worker.everywhere(life.now))
        assert len(found) == len(set(found))
        assert set(found) <= everywhere
        assert everywhere - set(found) <= life.hidden
        found_ever |= everywhere
    assert found_ever == set(POLICIES)
