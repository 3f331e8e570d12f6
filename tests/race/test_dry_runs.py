"""Under guards a dry run says what the run does at that instant: on random ledgers, row by row."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from store.batches import Stamp
from store.database import Database
from store.flip_stale_running import flip_stale_running, preview_flip
from store.guards import Guards
from store.reconcile_parked import arm_of, preview_reconcile, reconcile_parked
from tests.race import spec_model
from tests.race.spec_model import Row, Tables
from tests.race.test_random_ledgers import (
    AGES,
    MINUTE,
    NOW,
    RUN,
    SCOPES,
    WRITERS,
    Draw,
    Ledger,
    assert_same,
)

SEEDS = range(4)
# Scope, handle, verdict, revision, update, writer, and when it was first seen.
Sighting = tuple[str, str, str, int, int, str, int, int]
# How far apart two looks at a checkpoint may be.
APART = 5 * MINUTE


@pytest.fixture
def tables_in_postgres(ledger: tuple[str, Database]) -> Iterator[Ledger]:
    url, database = ledger
    postgres = Ledger(url, database.statements.ledger_schema)
    yield postgres
    postgres.close()


def guards_of(draw: Draw) -> Guards:
    return Guards(
        sightings=draw.random.random() < 0.8,
        plausible_times=draw.random.random() < 0.5,
        breaker_rows=draw.random.choice((None, None, 3)),
        missing_sighting_ms=MINUTE,
        live_writer_sighting_ms=10 * MINUTE,
    )


def sightings_of(draw: Draw, tables: Tables, verdicts: tuple[str, ...]) -> list[Sighting]:
    """Of some rows, at the present revision or at another, around each time that counts."""
    found: list[Sighting] = []
    for row in tables.agents.values():
        for verdict in verdicts:
            if draw.random.random() < 0.6:
                moved = draw.random.random() < 0.2
                ago = draw.random.choice((1, 2, 10)) * MINUTE + draw.random.choice((-1, 0, 1))
                last = NOW - draw.random.choice((0, APART, APART, APART + 1))
                key = (row["scope"], row["handle"], verdict)
                seen = (row["rev"] - moved, row["updated_at"], row["writer_id"], NOW - ago, last)
                found.append((*key, *seen))
    return found


def load(database: Database, sightings: list[Sighting]) -> None:
    """Each was seen to move long ago, if ever."""
    with database.transaction() as tx, tx._connection.cursor() as cursor:
        cursor.executemany(
            "insert into maintenance.sightings (scope, handle, verdict, rev, updated_at, writer_id,"
            " first_seen, last_seen) values (%s, %s, %s, %s, %s, %s, %s, %s)",
            sightings,
        )


def seen_ms(sightings: list[Sighting], row: Row, verdict: str) -> int:
    """For how long the verdict has been seen over the row as it is; 0: it is news."""
    for scope, handle, of, rev, updated_at, _, first_seen, last_seen in sightings:
        if (scope, handle, of) == (row["scope"], row["handle"], verdict):
            if of != "stale_running" and NOW - last_seen > APART:
                return 0
            return NOW - first_seen if (rev, updated_at) == (row["rev"], row["updated_at"]) else 0
    return 0


@pytest.mark.parametrize("seed", SEEDS)
def test_flip(tables_in_postgres: Ledger, database: Database, seed: int) -> None:
    """Sightings, held scopes, an empty table of checkpoints and breakers, in every mixture."""
    draw = Draw(300 + seed)
    tables = draw.tables()
    tables_in_postgres.load(tables)
    guards = guards_of(draw)
    held = {"a": "outage", "A": "mass"} if seed % 2 else {}
    ages = [(scope, draw.random.choice(AGES)) for scope in SCOPES]
    sightings = sightings_of(draw, tables, ("stale_running",))
    load(database, sightings)
    with database.transaction(read_only=True, snapshot=True) as tx:
        planned = preview_flip(tx, ages, NOW, guards, held)
    would = {
        (scope, "flipped" if cause is None else "skipped", cause): found.rows
        for (scope, cause), found in planned.items()
    }

    for _ in flip_stale_running(
        database, ages, Stamp(NOW, RUN), draw.size(), guards=guards, held=held
    ):
        pass

    assert tables_in_postgres.journal("flip_stale_running") == would
    # What the rules without guards would have flipped, less what the guards say of each row.
    silent = [
        row for row in tables.agents.values() if _flipped_by_the_rules(row, tables, dict(ages))
    ]
    expected: Counter[tuple[str, str, str | None]] = Counter()
    for row in sorted(silent, key=lambda row: (row["scope"], row["handle"].encode())):
        scope = row["scope"]
        flipped = expected[scope, "flipped", None]
        if scope in held:
            kind: tuple[str, str | None] = ("skipped", held[scope])
        elif guards.sightings and seen_ms(sightings, row, "stale_running") < 2 * MINUTE:
            kind = ("skipped", "sighting")
        elif guards.breaker_rows is not None and flipped >= guards.breaker_rows:
            kind = ("skipped", "breaker")
        else:
            kind = ("flipped", None)
        expected[(scope, *kind)] += 1
    assert would == +expected


def _flipped_by_the_rules(row: Row, tables: Tables, ages: dict[str, float]) -> bool:
    alone = Tables({(row["scope"], row["handle"]): dict(row, content=dict(row["content"]))})
    alone.checkpoints = tables.checkpoints
    return bool(spec_model.flip_stale_running(alone, [(row["scope"], ages[row["scope"]])], NOW))


@pytest.mark.parametrize("seed", SEEDS)
def test_reconciliation(tables_in_postgres: Ledger, database: Database, seed: int) -> None:
    """What is missing, and what is a living writer's, waits; nothing of it is written meanwhile."""
    draw = Draw(400 + seed)
    tables = draw.tables()
    for row in tables.agents.values():
        # Two of the three writers have a row that was renewed lately, or by a millisecond not.
        if row["status"] == "running":
            lately = {WRITERS[0]: NOW - 2 * MINUTE + 1, WRITERS[1]: NOW}
            old = min(row["updated_at"], NOW - 2 * MINUTE)
            row["updated_at"] = lately.get(row["writer_id"], old)
    tables_in_postgres.load(tables)
    guards = replace(guards_of(draw), sightings=True, plausible_times=seed % 2 == 0)
    leases = [(scope, draw.random.choice((None, MINUTE, 5 * MINUTE))) for scope in SCOPES]
    verdicts = ("checkpoint_missing", "checkpoint_expired", "stale_claim", "stranded")
    sightings = sightings_of(draw, tables, verdicts)
    load(database, sightings)
    with database.transaction(read_only=True, snapshot=True) as tx:
        planned = preview_reconcile(tx, leases, NOW, guards)
    would = {
        (scope, arm_of(verdict), verdict): found.rows for (scope, verdict), found in planned.items()
    }

    for _ in reconcile_parked(database, leases, Stamp(NOW, RUN), draw.size(), guards=guards):
        pass

    assert tables_in_postgres.journal("reconcile_parked") == would
    expected: Counter[tuple[str, str, str | None]] = Counter()
    after = Tables(checkpoints=tables.checkpoints)
    lease_of = dict(leases)
    shared = {key: dict(checkpoint) for key, checkpoint in tables.checkpoints.items()}
    for key, row in tables.agents.items():
        lease = lease_of[row["scope"]]
        checkpoint = shared.get((row["scope"], row["parked_checkpoint_token"]))
        cause = spec_model._cause(row, checkpoint, lease, NOW)
        needed = MINUTE if cause == "checkpoint_missing" else 0
        if row["writer_id"] in WRITERS[:2]:
            needed = max(needed, 10 * MINUTE)
        waits = cause not in {None, "undated_checkpoint"}
        if waits and seen_ms(sightings, row, str(cause)) < needed:
            expected[row["scope"], "skipped", "sighting"] += 1
            after.agents[key] = row
            continue
        one = Tables({key: row}, tables.checkpoints)
        expected += spec_model.reconcile_parked(one, {row["scope"]: lease}, NOW)
        after.agents |= one.agents
    assert would == expected
    found = tables_in_postgres.read()
    assert_same(found.agents, after.agents)
    assert_same(found.checkpoints, after.checkpoints)
