"""`python -m bench.undo`: what undo costs a reap, on and off.

How fast a reap deletes with statements that know nothing of undo, with undo off, and with a window.
"""

from __future__ import annotations

import argparse
import time
from contextlib import closing
from datetime import timedelta
from statistics import median
from typing import Final

from bench.ledger import NOW_MS, Ledger, loaded
from store.batches import BatchSize, Stamp
from store.database import AGENT_FRAGMENTS, Database
from store.reap import reap
from store.retention import RetentionPolicy
from store.statements import Statements
from tests.ledgers import why_unavailable
from worker.sample.cycle import MIX

# What is said of it, the window, and the fragments that stand in for those that are shipped.
_QUEUED: Final = """
queued as (
    insert into maintenance.session_releases
        (scope, session_id, handle, settled_at, run_id, queued_at, not_before)
    select
        scope, session_id, handle, aged_by, %(run_id)s, NOW,
        NOW + %(release_delay_ms)s::bigint
    from gone
    where session_id is not null
),
journaled as (
    insert into maintenance.journal (run_id, batch, at, job, scope, arm, count)
    select %(run_id)s, %(batch)s, %(now)s, 'reap', scope, %(arm)s, count(*)
    from gone
    group by scope
)
""".replace(
    "NOW", "coalesce(%(at)s::bigint, (extract(epoch from clock_timestamp()) * 1000)::bigint)"
)
_KINDS: Final[dict[str, tuple[timedelta | None, dict[str, str]]]] = {
    "no undo at all": (None, {"kept_record": "1 as one", "release_and_journal": _QUEUED}),
    "undo off": (None, {}),
    "a window of a day": (timedelta(days=1), {}),
}


def _measure(ledger: Ledger, kind: str, size: BatchSize) -> float:
    """Rows per second."""
    ledger.put_back()
    window, instead = _KINDS[kind]
    with closing(Database(ledger.url)) as database:
        database.statements = Statements("public", {**AGENT_FRAGMENTS, **instead})
        with database.transaction(read_only=True) as tx:
            scopes = [row["scope"] for row in tx.rows("list_scopes")]
        policy = RetentionPolicy(max_age_ms=MIX["max_age_ms"])
        policies = [(scope, policy) for scope in scopes]
        began = time.perf_counter()
        batches = reap(database, policies, Stamp(NOW_MS), size, undo_window=window)
        changed = sum(done.rows for done in batches)
        return changed / (time.perf_counter() - began)


def main() -> None:
    """Measure and print a table; figures are medians over the rounds, which take turns."""
    parser = argparse.ArgumentParser(prog="python -m bench.undo", description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--scopes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--versions", nargs="*", default=["15", "18"])
    options = parser.parse_args()
    print(f"{'reap with':28}{'Postgres':>10}{'rows/s':>12}{'ratio':>10}")
    for version in options.versions:
        if reason := why_unavailable(version):
            print(f"Postgres {version} left out: {reason}")
            continue
        with loaded(version, options.rows, options.scopes, {"terminal_share": 1.0}) as ledger:
            rounds = [
                {kind: _measure(ledger, kind, BatchSize()) for kind in _KINDS}
                for _ in range(options.rounds)
            ]
        for kind in _KINDS:
            speed = median(each[kind] for each in rounds)
            ratio = median(each[kind] / each["no undo at all"] for each in rounds)
            print(f"{kind:28}{version:>10}{speed:>12,.0f}{ratio:>10.2f}", flush=True)


if __name__ == "__main__":
    main()
