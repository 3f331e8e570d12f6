"""`python -m bench.holds`: what holds cost a reap that meets none, and one that meets some.

How long a reap takes with no hold at all, with many holds in scopes that it does not meet, and with
one held row in each scope that it does; and which share of it went into asking for holds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from statistics import median
from typing import Any, Final

import psycopg
from psycopg.rows import DictRow

from bench.ledger import NOW_MS, Ledger, loaded
from store.batches import BatchSize, Stamp
from store.database import Database, Transaction
from store.reap import reap
from store.retention import RetentionPolicy, before
from tests.ledgers import why_unavailable
from worker.sample.cycle import MIX

_ASKING: Final = ("share_holds", "any_hold", "held_scopes")
_INSERT: Final = "insert into maintenance.holds (scope, handle, reason, placed_by, placed_at)"
_SETTLED_BEFORE: Final = before(NOW_MS, MIX["max_age_ms"])
# What is held, by what is said of it.
_HELD: Final = {
    "nothing held": "",
    "100,000 rows held elsewhere": f"{_INSERT} select 'elsewhere ' || n % 1000, 'h' || n, 'why',"
    " 'ada', 1 from generate_series(1, 100000) n",
    "a row held in each scope": f"{_INSERT} select scope, min(handle), 'why', 'ada', 1"
    f" from public.background_agents where settled_at < {_SETTLED_BEFORE} group by scope",
}


class _Timed(Database):
    """A database that adds up how long the statements took that ask for holds."""

    asking = 0.0

    @contextmanager
    def transaction(self, **how: Any) -> Iterator[Transaction]:
        with super().transaction(**how) as tx:
            yield _TimedTransaction(tx._connection, self)  # noqa: SLF001


class _TimedTransaction(Transaction):
    def __init__(self, connection: psycopg.Connection[DictRow], database: _Timed) -> None:
        super().__init__(connection, database.statements)
        self._database = database

    def rows(self, statement: str, params: Mapping[str, Any] | None = None) -> list[DictRow]:
        with self._timed(statement):
            return super().rows(statement, params)

    def one(self, statement: str, params: Mapping[str, Any] | None = None) -> DictRow | None:
        with self._timed(statement):
            return super().one(statement, params)

    @contextmanager
    def _timed(self, statement: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        if statement in _ASKING:
            self._database.asking += time.perf_counter() - began


def _measure(ledger: Ledger, held: str, size: BatchSize) -> tuple[float, float]:
    """Rows per second, and the share of the time that went into asking for holds."""
    ledger.put_back()
    with psycopg.connect(ledger.url, autocommit=True) as connection:
        connection.execute("truncate maintenance.holds")
        if held:
            connection.execute(held.encode())
        connection.execute("vacuum analyze maintenance.holds")
    with closing(_Timed(ledger.url)) as database:
        with database.transaction(read_only=True) as tx:
            scopes = [row["scope"] for row in tx.rows("list_scopes")]
        policy = RetentionPolicy(max_age_ms=MIX["max_age_ms"])
        policies = [(scope, policy) for scope in scopes]
        began = time.perf_counter()
        changed = sum(done.rows for done in reap(database, policies, Stamp(NOW_MS), size))
        took = time.perf_counter() - began
        return changed / took, database.asking / took


def main() -> None:
    """Measure and print a table; figures are medians over the rounds, which take turns."""
    parser = argparse.ArgumentParser(prog="python -m bench.holds", description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--scopes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--versions", nargs="*", default=["15", "18"])
    options = parser.parse_args()
    print(f"{'reap with':28}{'Postgres':>10}{'rows/s':>12}{'asking for holds':>18}")
    for version in options.versions:
        if reason := why_unavailable(version):
            print(f"Postgres {version} left out: {reason}")
            continue
        with loaded(version, options.rows, options.scopes, {"terminal_share": 1.0}) as ledger:
            rounds = [
                {said: _measure(ledger, held, BatchSize()) for said, held in _HELD.items()}
                for _ in range(options.rounds)
            ]
        for said in _HELD:
            speed = median(each[said][0] for each in rounds)
            share = median(each[said][1] for each in rounds)
            print(f"{said:28}{version:>10}{speed:>12,.0f}{share:>17.1%}", flush=True)


if __name__ == "__main__":
    main()
