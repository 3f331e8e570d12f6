"""Random ledgers under guarded runs, which do what the model does and what the dry run said."""

from collections import Counter
from collections.abc import Iterator
from random import Random

import psycopg
import pytest

from store.batches import BatchSize, Done, Stamp
from store.database import Database
from store.guards import Guards
from store.reap import preview_reap, reap
from store.retention import RetentionPolicy
from tests.race import guard_model
from tests.race.guard_model import AGENTS_EXIST_SINCE, Retained
from tests.race.spec_model import ATTRIBUTION, Counts, Row
from tests.race.test_random_ledgers import (
    AGES,
    MINUTE,
    NOW,
    PREFIXES,
    SCOPES,
    Draw,
    Ledger,
    run_and_compare,
    tables_in_postgres,
)

__all__ = ["tables_in_postgres"]

SEEDS = range(6)
HEARTBEAT = MINUTE // 2
# So many that some live and some do not.
WRITERS = [f"host-{n}" for n in range(40)]
CONTENTS = (
    {"error": ATTRIBUTION, "summary": ATTRIBUTION},
    {"error": ATTRIBUTION, "summary": "", "futureMember": [None]},
    {"error": "its own words", "summary": ATTRIBUTION},
    {"error": f"{ATTRIBUTION}.", "summary": None},
)
# At the limits of what is believed, and well outside of them.
ODD_TIMES = (
    AGENTS_EXIST_SINCE - 1,
    AGENTS_EXIST_SINCE,
    NOW,
    NOW + 1,
    NOW // 1000,
    NOW * 1000,
    0,
    -1,
)
LIFTED: tuple[tuple[str, ...], ...] = (
    (),
    ("fresh-flips",),
    ("plausible-times",),
    ("all",),
)


class GuardedDraw(Draw):
    """Draws rows near the limits of the guards, too."""

    def time(self) -> int:
        if self.random.random() < 0.08:
            return self.random.choice(ODD_TIMES)
        return super().time()

    def agent(self, scope: str, number: int) -> Row:
        row = super().agent(scope, number)
        row["writer_id"] = self.random.choice(WRITERS)
        if self.random.random() < 0.5:
            row["content"] = dict(self.random.choice(CONTENTS))
        if row["status"] == "completed" and self.random.random() < 0.6:
            row["status"] = "failed"
        return row

    def policies(self) -> list[Retained]:
        choice = self.random.choice
        return [
            Retained(
                scope,
                choice((None, *AGES, 0)),
                choice((None, 0, 1, 5, 2**62)),
                choice((None, MINUTE, 5 * MINUTE, 2.0**80)),
            )
            for scope in SCOPES
        ]


Hold = tuple[str, str | None]


def holds_of(chance: Random) -> list[Hold]:
    """Some lie on rows that are not there, several on one, and now and then on a whole scope."""
    found: list[Hold] = [(scope, None) for scope in SCOPES if chance.random() < 0.15]
    for scope in SCOPES:
        for prefix in PREFIXES:
            found += [(scope, f"{prefix}{n}") for n in range(60) if chance.random() < 0.2]
    return found + chance.sample(found, 5)


def place(url: str, holds: list[Hold]) -> None:
    """Half of them end some day. Beside each whole tenant there is a hold on it that is over."""
    later, past = "extract(epoch from now()) * 1000 + 86400000", "1"
    with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        insert = "insert into maintenance.holds (scope, handle, reason, placed_by, placed_at, "
        for ends_at in ("null", later):
            cursor.executemany(
                f"{insert} ends_at) values (%s, %s, 'why', 'ada', 0, {ends_at})".encode(),
                holds[ends_at == later :: 2],
            )
        over: list[Hold] = [(scope, handle) for scope in SCOPES for handle in (None, "h1", "H2")]
        cursor.executemany(
            f"{insert} ends_at) values (%s, %s, 'why', 'ada', 0, {past})".encode(), over
        )
        cursor.executemany(
            f"{insert} released_at) values (%s, %s, 'why', 'ada', 0, 1)".encode(), over
        )


def arms(policies: list[Retained]) -> list[tuple[str, RetentionPolicy]]:
    return [(p.scope, RetentionPolicy(p.max_age, p.keep, p.stale)) for p in policies]


@pytest.mark.parametrize("lifted", LIFTED, ids=lambda names: "+".join(names) or "none")
@pytest.mark.parametrize("seed", SEEDS)
def test_guarded_reap_deletes_what_the_model_deletes_and_the_dry_run_says(
    tables_in_postgres: Ledger,
    ledger_url: str,
    database: Database,
    seed: int,
    lifted: tuple[str, ...],
) -> None:
    draw = GuardedDraw(500 + seed)
    policies = draw.policies()
    guards = Guards(heartbeat_ms=HEARTBEAT).without(lifted)
    holds = holds_of(Random(seed)) if seed % 2 else []
    place(ledger_url, holds)
    planned: Counts = Counter()

    def run(stamp: Stamp, size: BatchSize) -> Iterator[Done]:
        with database.transaction(read_only=True, snapshot=True) as tx:
            found = preview_reap(tx, arms(policies), NOW, guards)
        planned.update({kind: backlog.rows for kind, backlog in found.items()})
        return reap(database, arms(policies), stamp, size, guards=guards)

    counts = run_and_compare(
        tables_in_postgres,
        draw,
        "reap",
        run,
        lambda tables: guard_model.reap(
            tables,
            policies,
            NOW,
            HEARTBEAT,
            fresh_flips=guards.fresh_flips,
            plausible_times=guards.plausible_times,
            holds=holds,
        ),
    )

    assert planned == counts


def test_the_drawn_ledgers_hold_every_case() -> None:
    """Flips that are fresh for either reason and flips that are not, holds, and every odd time."""
    seen: Counter[tuple[str, str | None]] = Counter()
    fresh: Counter[tuple[bool, bool]] = Counter()
    for seed in SEEDS:
        draw = GuardedDraw(500 + seed)
        draw.policies()
        tables = draw.tables()
        living = guard_model.live_writers(tables, NOW, HEARTBEAT)
        for row in tables.agents.values():
            if row["status"] == "failed" and ATTRIBUTION in row["content"].values():
                young = guard_model.ended_at(row) >= NOW - MINUTE
                fresh[young, row["writer_id"] in living] += 1
        counts = guard_model.reap(
            tables,
            [Retained(scope, 5 * MINUTE, 5, MINUTE) for scope in SCOPES],
            NOW,
            HEARTBEAT,
            fresh_flips=True,
            plausible_times=True,
            holds=holds_of(Random(seed)) if seed % 2 else (),
        )
        for (_, arm, cause), count in counts.items():
            seen[arm, cause] += count

    assert set(seen) == {
        ("max_age", None),
        ("keep", None),
        ("skipped", "fresh_flip"),
        ("skipped", "implausible_time"),
        ("skipped", "hold"),
    }
    assert min(seen.values()) > 5
    assert len(fresh) == 4
    assert min(fresh.values()) > 5
