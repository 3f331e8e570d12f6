"""What is shown of a real ledger as it is now: rows and entries, what is overdue, clocks."""

import time
from typing import Any

import psycopg

from config.policy import parse_policy
from store.checkpoints import PostgresCheckpointStore
from store.contract import Checkpoint
from store.database import Database
from store.figures import clock_skew
from tests.e2e.scraping import full_scrape, now_ms, process_of, put_agent, serving

POLICY = parse_policy(
    """
    [guards]
    sightings = false
    outage = false
    [defaults]
    max_age = "2h"
    stale_running_max_age = "30m"
    stale_claim_max_age = "20m"
    [[override]]
    match = "kept"
    max_age = "off"
    keep = 1
    """,
    "test",
)


def test_the_present_is_counted_and_dated(plain_ledger: tuple[str, Database]) -> None:
    """Rows around each limit: only those past it are overdue, and only since then."""
    url, database = plain_ledger
    now = now_ms(url)

    def ago(minutes: float) -> int:
        return now - int(minutes * 60_000)

    for handle, settled in (("t1", ago(150)), ("t2", ago(121)), ("t3", ago(118))):
        put_agent(database, handle, status="completed", updated_at=settled, settled_at=settled)
    for handle in ("k1", "k2", "k3"):
        put_agent(
            database, handle, "kept", status="killed", updated_at=ago(900), settled_at=ago(900)
        )
    put_agent(database, "r1", status="running", updated_at=ago(45))
    put_agent(database, "r2", status="running", updated_at=ago(29))
    checkpoints = PostgresCheckpointStore(database)
    checkpoints.put(Checkpoint("a", "late", "pending", expires_at=ago(10)))
    checkpoints.put(Checkpoint("a", "early", "pending", expires_at=ago(-10)))
    checkpoints.put(Checkpoint("a", "undated", "resolved"))
    for handle, token in (("p1", "late"), ("p2", "early"), ("p3", "undated")):
        put_agent(
            database,
            handle,
            status="parked",
            updated_at=ago(15),
            parked_at=ago(15),
            parked_checkpoint_token=token,
        )
    with psycopg.connect(url, autocommit=True) as connection:
        for state, due_at, lease_to in (
            ("pending", ago(8), None),
            ("pending", ago(5), ago(1)),
            ("pending", ago(9), ago(-5)),
            ("pending", ago(-5), None),
            ("suspect", ago(60), None),
        ):
            connection.execute(
                "insert into maintenance.session_releases (scope, session_id, handle, settled_at,"
                " run_id, queued_at, not_before, state, claimed_until)"
                " values ('a', 's', 'h', 0, gen_random_uuid(), 0, %s, %s, %s)",
                (due_at, state, lease_to),
            )

        for minutes, counted_at in ((7, None), (70, now)):
            connection.execute(
                "insert into maintenance.harvest_rejections (code, occurred_at, counted_at)"
                " values ('a', %s, %s)",
                (ago(minutes), counted_at),
            )

    process = process_of(url, POLICY)
    with serving(process) as served:
        found = full_scrape(served)
    passed_s = (now_ms(url) - now) / 1000

    assert found.by("background_agents", "status") == {
        "running": 2,
        "parked": 3,
        "completed": 3,
        "failed": 0,
        "killed": 3,
    }
    assert found.by("background_agent_session_releases", "state") == {
        "pending": 4,
        "suspect": 1,
        "dead": 0,
    }
    assert found.by("background_agents_overdue", "job") == {
        "reap": 2 + 2,
        "flip_stale_running": 1,
        "reconcile_parked": 1,
        "release_sessions": 2,
        "drain_harvest": 1,
    }
    oldest = found.by("background_agent_oldest_overdue_seconds", "job")
    for job, due_s in (
        ("reap", 30 * 60),
        ("flip_stale_running", 15 * 60),
        ("reconcile_parked", 10 * 60),
        ("release_sessions", 8 * 60),
        ("drain_harvest", 7 * 60),
    ):
        assert due_s <= oldest[job] <= due_s + passed_s, job


def test_what_was_asked_for_in_vain_is_shown_for_an_hour(
    plain_ledger: tuple[str, Database],
) -> None:
    """Failed runs that no tick began, and refused requests; a job that nobody knows is 'other'."""
    url, _ = plain_ledger
    now, hour = now_ms(url), 3_600_000
    runs = [
        ("reap", None, "failed", now - 1),
        ("reap", None, "failed", now - hour // 2),
        ("reap", None, "failed", now - hour - 1),
        ("reap", None, "succeeded", now - 1),
        ("reap", 1, "failed", now - 1),
        ("acme secret", None, "failed", now - 1),
    ]
    requests = [
        ("flip_stale_running", "refused", now - 1),
        ("flip_stale_running", "refused", now - hour - 1),
        ("flip_stale_running", "taken", now - 1),
        ("tenant/acme", "refused", now - 1),
    ]
    with psycopg.connect(url, autocommit=True) as connection:
        for job, slot, state, finished in runs:
            connection.execute(
                "insert into maintenance.runs"
                " (id, job, slot, requested_by, state, started_at, finished_at)"
                " values (gen_random_uuid(), %s, %s, 'ada', %s, 1, %s)",
                (job, slot, state, finished),
            )
        for job, state, settled in requests:
            connection.execute(
                "insert into maintenance.requests"
                " (id, job, requested_by, requested_at, state, taken_at)"
                " values (gen_random_uuid(), %s, 'ada', 1, %s, %s)",
                (job, state, settled),
            )

    with serving(process_of(url, POLICY)) as served:
        found = full_scrape(served).by("maintenance_operator_failures", "job")

    assert {job: count for job, count in found.items() if count} == {
        "reap": 2,
        "flip_stale_running": 1,
        "other": 2,
    }


def test_an_old_transaction_shows_in_the_horizon(plain_ledger: tuple[str, Database]) -> None:
    url, _ = plain_ledger

    def age() -> float:
        with serving(process_of(url, POLICY)) as served:
            return full_scrape(served).value("maintenance_xmin_horizon_age_seconds")

    with psycopg.connect(url) as holder:
        holder.execute("select pg_current_xact_id()")
        holder.execute("select pg_sleep(0.4)")
        assert 0.4 <= age() < 60
    assert age() < 0.4


def test_the_skew_is_the_databases_clock_less_ours(plain_ledger: tuple[str, Database]) -> None:
    url, database = plain_ledger
    behind = clock_skew(database, lambda: time.time() - 100)
    assert 99 < behind.total_seconds() < 101
    assert -101 < clock_skew(database, lambda: time.time() + 100).total_seconds() < -99
    with serving(process_of(url, POLICY)) as served:
        assert abs(full_scrape(served).value("maintenance_clock_skew_seconds")) < 1


def test_an_abandoned_claim_is_overdue_only_since_its_lease_ended(
    plain_ledger: tuple[str, Database],
) -> None:
    """Rows and an approval that were silent for 25 minutes, under a lease of 20: 5 minutes."""
    url, database = plain_ledger
    now = now_ms(url)
    silent_since, parked_since = now - 25 * 60_000, now - 24 * 3_600_000
    checkpoints = PostgresCheckpointStore(database)
    checkpoints.put(Checkpoint("a", "pending", "pending", expires_at=now + 3_600_000))
    checkpoints.put(Checkpoint("a", "given", "resolved", updated_at=silent_since))
    claimed: dict[str, Any] = {
        "parked_checkpoint_token": "pending",
        "park_claim_id": "c",
        "parked_at": 1,
    }
    put_agent(database, "reserved", status="parked", updated_at=silent_since, **claimed)
    put_agent(database, "resuming", status="running", updated_at=silent_since, **claimed)
    put_agent(
        database,
        "stranded",
        status="parked",
        updated_at=parked_since,
        parked_at=parked_since,
        parked_checkpoint_token="given",
    )

    with serving(process_of(url, POLICY)) as served:
        found = full_scrape(served)
    passed_s = (now_ms(url) - now) / 1000

    assert found.by("background_agents_overdue", "job")["reconcile_parked"] == 3
    oldest = found.by("background_agent_oldest_overdue_seconds", "job")["reconcile_parked"]
    assert 5 * 60 <= oldest <= 5 * 60 + passed_s
