"""Random ledgers, one job on each, and every table compared with a model that shares no code."""

import copy
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from store.batches import BatchSize, Done, Stamp
from store.database import Database
from store.flip_stale_running import flip_stale_running
from store.reap import RELEASE_DELAY, reap
from store.reconcile_parked import Excluded, reconcile_parked
from store.retention import RetentionPolicy
from tests.race import spec_model
from tests.race.spec_model import Age, Counts, Naming, Row, Tables

RUN = UUID(int=7)
NOW = 1_796_029_200_000
MINUTE = 60_000
# Scopes and handles that tell byte order from every other one, and that SQL could stumble on.
SCOPES = ("a", "a/b", "A", 'tenant\'s "%s"', "ümlaut")
PREFIXES = ("h", "H", "_", "é", "zz", "10")
# Fractions move a limit between two milliseconds; the greatest is beyond every time.
AGES: tuple[Age, ...] = (0, MINUTE, MINUTE + 0.5, 5 * MINUTE, 10**30)
WRITERS = ("host-a", "host-b", "host-c")
CONTENTS: tuple[dict[str, Any], ...] = (
    {},
    {"error": None, "summary": ""},
    {"error": "", "summary": None, "parkClaimId": None},
    {"error": "its own words", "futureMember": {"deep": [1, 2.5, None, {}]}, "usage": {}},
    {"summary": "naïve ✓", "admittedOrgScopes": [], "big": 2**60, "recentSteps": None},
)


class Draw:
    """Draws what a ledger is made of, near every limit that a job may have."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def time(self) -> int:
        """Mostly at a limit, a millisecond before or after it; now and then in the future."""
        age = self.random.choice((0, MINUTE, 5 * MINUTE, 60 * MINUTE))
        return NOW - age + self.random.choice((-1, 0, 1, -MINUTE // 2))

    def maybe(self, value: Any, chance: float = 0.5) -> Any:
        return value if self.random.random() < chance else None

    def age(self) -> Age | None:
        return self.random.choice((None, *AGES))

    def agent(self, scope: str, number: int) -> Row:
        status = self.random.choice(
            ("running", "running", "parked", "parked", *spec_model.TERMINAL)
        )
        token = self.random.choice((None, *(f"token {n}" for n in range(8))))
        return {
            "scope": scope,
            "handle": f"{self.random.choice(PREFIXES)}{number}",
            "rev": self.random.choice((0, 1, 41)),
            "status": status,
            "owner": "owner",
            "session_scoped": self.random.random() < 0.5,
            "session_id": self.maybe(f"session {self.random.randrange(12)}"),
            "parent_session_id": self.maybe("parent"),
            "root_session_id": self.maybe(""),
            "parent_task_id": self.maybe("task"),
            "name": self.maybe("scout"),
            "agent_type": self.maybe("explorer"),
            "description": self.maybe("reads 100% of it"),
            "model": self.maybe("atlas"),
            "writer_id": self.random.choice(WRITERS),
            "writer_epoch": self.maybe(self.random.randrange(5)),
            "spawned_at": NOW - 90 * MINUTE,
            "updated_at": self.time(),
            "settled_at": self.maybe(self.time(), 0.7 if status in spec_model.TERMINAL else 0.1),
            "stopped_by": self.maybe("user", 0.1),
            "completion_id": self.maybe("done", 0.3),
            "seq": self.maybe(2, 0.3),
            "parked_checkpoint_token": self.maybe(token, 0.2 if status != "running" else 0.6)
            if status != "parked"
            else token,
            "parked_at": self.maybe(self.time(), 0.8 if status == "parked" else 0.2),
            "park_claim_id": self.maybe("claim", 0.5 if status in {"parked", "running"} else 0.1),
            "content": copy.deepcopy(self.random.choice(CONTENTS)),
        }

    def checkpoint(self, scope: str, token: str) -> Row:
        return {
            "scope": scope,
            "token": token,
            "status": self.random.choice(("pending", "pending", "resolved", "expired")),
            "expires_at": self.maybe(NOW + self.random.choice((-MINUTE, -1, 0, 1, MINUTE)), 0.7),
            "updated_at": self.maybe(self.time(), 0.7),
            "content": {"question": None},
        }

    def tables(self) -> Tables:
        tables = Tables()
        for scope in SCOPES:
            for number in range(self.random.randrange(10, 60)):
                row = self.agent(scope, number)
                tables.agents[scope, row["handle"]] = row
            # The last two tokens have no checkpoint.
            for n in range(6):
                token = f"token {n}"
                tables.checkpoints[scope, token] = self.checkpoint(scope, token)
        return tables

    def size(self) -> BatchSize:
        return BatchSize(self.random.choice((1, 7, 30, 5000)), self.random.choice((1, 2, 20)))


class Ledger:
    """The same tables in Postgres, loaded and read by SQL."""

    def __init__(self, url: str, schema: str) -> None:
        self._schema = schema
        self._connection = psycopg.connect(url, autocommit=True, row_factory=dict_row)

    def close(self) -> None:
        self._connection.close()

    def load(self, tables: Tables) -> None:
        for name, rows in (
            ("background_agents", tables.agents.values()),
            ("checkpoints", tables.checkpoints.values()),
        ):
            self._load(name, list(rows))

    def _load(self, table: str, rows: list[Row]) -> None:
        columns = [*rows[0]]
        statement = (
            f"insert into {self._schema}.{table} ({', '.join(columns)})"
            f" values ({', '.join(f'%({column})s' for column in columns)})"
        )
        with self._connection.cursor() as cursor:
            cursor.executemany(
                statement.encode(), [{**row, "content": Jsonb(row["content"])} for row in rows]
            )

    def read(self) -> Tables:
        agents = self._all(f"select * from {self._schema}.background_agents")
        checkpoints = self._all(f"select * from {self._schema}.checkpoints")
        releases = self._all("select * from maintenance.session_releases")
        delay = RELEASE_DELAY.total_seconds() * 1000
        for row in releases:
            assert (row["run_id"], row["queued_at"], row["not_before"], row["state"]) == (
                RUN,
                NOW,
                NOW + delay,
                "pending",
            )
        return Tables(
            {(row["scope"], row["handle"]): row for row in agents},
            {(row["scope"], row["token"]): row for row in checkpoints},
            Counter((r["scope"], r["session_id"], r["handle"], r["settled_at"]) for r in releases),
        )

    def journal(self, job: str) -> Counts:
        counts: Counts = Counter()
        rows = self._all("select * from maintenance.journal")
        for row in rows:
            assert (row["job"], row["run_id"], row["at"]) == (job, RUN, NOW)
            counts[row["scope"], row["arm"], row["cause"]] += row["count"]
        # One row per run, batch, scope and arm (with its cause).
        assert len(rows) == len(
            {(row["batch"], row["scope"], row["arm"], row["cause"]) for row in rows}
        )
        return counts

    def _all(self, query: str) -> list[Row]:
        return self._connection.execute(query.encode()).fetchall()


@pytest.fixture
def tables_in_postgres(ledger: tuple[str, Database]) -> Iterator[Ledger]:
    url, database = ledger
    postgres = Ledger(url, database.statements.ledger_schema)
    yield postgres
    postgres.close()


def assert_same(found: dict[tuple[str, str], Row], wanted: dict[tuple[str, str], Row]) -> None:
    """Member by member; where the wording is free, that it names the cause."""
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        error = row["content"].get("error")
        if isinstance(error, Naming):
            assert error in found[key]["content"]["error"]
            row["content"]["error"] = found[key]["content"]["error"]
        assert found[key] == row, key
        # WHY as text, too: to Python 1, 1.0 and True are the same.
        assert as_text(found[key]) == as_text(row)


def as_text(row: Row) -> str:
    return json.dumps(row, sort_keys=True)


def run_and_compare(
    postgres: Ledger,
    draw: Draw,
    job: str,
    run: Callable[[Stamp, BatchSize], Iterator[Done]],
    model: Callable[[Tables], Counts],
) -> Counts:
    """Load a ledger, run the job on it, and compare all there is with what the model says."""
    tables = draw.tables()
    postgres.load(tables)

    said: Counter[tuple[str, str | None]] = Counter()
    for done in run(Stamp(NOW, RUN), draw.size()):
        said.update(done.by_kind)

    counts = model(tables)
    found = postgres.read()
    assert_same(found.agents, tables.agents)
    assert_same(found.checkpoints, tables.checkpoints)
    assert found.releases == tables.releases
    assert postgres.journal(job) == counts
    assert +said == totals(counts)
    return counts


def totals(counts: Counts) -> Counter[tuple[str, str | None]]:
    by_kind: Counter[tuple[str, str | None]] = Counter()
    for (_, arm, cause), count in counts.items():
        by_kind[arm, cause] += count
    return by_kind


def of_every_scope(draw: Callable[[], Any]) -> list[tuple[str, Any]]:
    return [(scope, draw()) for scope in SCOPES]


SEEDS = range(6)


@pytest.mark.parametrize("seed", SEEDS)
def test_reap_deletes_what_the_model_deletes(
    tables_in_postgres: Ledger, database: Database, seed: int
) -> None:
    draw = Draw(seed)
    policies = [(scope, draw.age(), draw.random.choice((None, 0, 1, 5, 2**62))) for scope in SCOPES]
    arms = [(scope, RetentionPolicy(max_age_ms=age, keep=keep)) for scope, age, keep in policies]

    run_and_compare(
        tables_in_postgres,
        draw,
        "reap",
        lambda stamp, size: reap(database, arms, stamp, size),
        lambda tables: spec_model.reap(tables, policies, NOW),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_flip_fails_what_the_model_fails(
    tables_in_postgres: Ledger, database: Database, seed: int
) -> None:
    draw = Draw(100 + seed)
    ages: list[tuple[str, Age]] = of_every_scope(lambda: draw.random.choice(AGES))

    run_and_compare(
        tables_in_postgres,
        draw,
        "flip_stale_running",
        lambda stamp, size: flip_stale_running(database, ages, stamp, size),
        lambda tables: spec_model.flip_stale_running(tables, ages, NOW),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_reconciliation_follows_the_checkpoints_as_the_model_does(
    tables_in_postgres: Ledger, database: Database, seed: int
) -> None:
    draw = Draw(200 + seed)
    leases: list[tuple[str, Age | None]] = of_every_scope(draw.age)
    excluded = Excluded(
        draw.random.sample(WRITERS, seed % 2), [f"h{n}" for n in range(3 * (seed % 3))]
    )

    run_and_compare(
        tables_in_postgres,
        draw,
        "reconcile_parked",
        lambda stamp, size: reconcile_parked(database, leases, stamp, size, excluded),
        lambda tables: spec_model.reconcile_parked(
            tables, dict(leases), NOW, excluded.writer_ids, excluded.handles
        ),
    )


def test_the_drawn_ledgers_hold_every_case() -> None:
    """Over all seeds every arm, every cause and every skip happens more than once."""
    seen: Counter[tuple[str, str | None]] = Counter()

    def count(counts: Counts) -> None:
        seen.update(totals(counts))

    for seed in SEEDS:
        draw = Draw(seed)
        both: Iterable[tuple[str, Age, int]] = [(scope, 5 * MINUTE, 5) for scope in SCOPES]
        count(spec_model.reap(draw.tables(), both, NOW))
        ages: list[tuple[str, Age]] = [(scope, MINUTE) for scope in SCOPES]
        count(spec_model.flip_stale_running(draw.tables(), ages, NOW))
        count(spec_model.reconcile_parked(draw.tables(), dict(ages), NOW))

    assert set(seen) == {
        ("max_age", None),
        ("keep", None),
        ("flipped", None),
        ("failed", "checkpoint_expired"),
        ("failed", "checkpoint_missing"),
        ("failed", "stranded"),
        ("rolled_back", "stale_claim"),
        ("skipped", "undated_checkpoint"),
    }
    assert min(seen.values()) > 5
