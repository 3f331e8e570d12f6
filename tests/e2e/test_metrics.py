"""The counts of a real ledger over real HTTP, against the journal and what the tables lost."""

import itertools
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from config.policy import Policy, parse_policy
from store.checkpoints import PostgresCheckpointStore
from store.contract import Checkpoint, Session
from store.database import Database
from store.sessions import PostgresSessionStore
from tests.e2e.scraping import (
    ROW_JOBS,
    SAMPLE_POLICY,
    Scrape,
    ask,
    by_hand,
    full_scrape,
    load_sample,
    now_ms,
    number,
    process_of,
    put_agent,
    scrape,
    serving,
)
from worker import frame

LABELS = {
    *("arm", "outcome", "cause", "job", "reason", "code", "tag", "status", "state", "version"),
    "le",
}


@dataclass(frozen=True)
class Tables:
    """The ledger at one moment: rows by key as (status, park claim, rev), and transcripts."""

    agents: dict[tuple[Any, Any], tuple[Any, Any, Any]]
    sessions: set[tuple[Any, ...]]

    @classmethod
    def of(cls, url: str) -> "Tables":
        rows = ask(url, "select scope, handle, status, park_claim_id, rev from background_agents")
        return cls(
            {(scope, handle): (status, claim, rev) for scope, handle, status, claim, rev in rows},
            {*ask(url, "select scope, session_id from agent_sessions")},
        )


def changed(before: Tables, after: Tables) -> list[tuple[Any, Any]]:
    """Statuses before and after, of the rows that are another revision now."""
    return [
        (row[0], after.agents[key][0])
        for key, row in before.agents.items()
        if key in after.agents and after.agents[key] != row
    ]


def test_every_count_is_what_the_tables_lost(plain_ledger: tuple[str, Database]) -> None:
    url, database = plain_ledger
    load_sample(url, database)
    process = process_of(url, SAMPLE_POLICY)
    moments = [Tables.of(url)]
    for job in ROW_JOBS:
        by_hand(process, job)
        moments.append(Tables.of(url))
    loaded, flipped, reconciled, reaped, released = moments

    with serving(process) as served:
        found = full_scrape(served)

    flips = changed(loaded, flipped)
    assert {*flips} == {("running", "failed")}
    assert found.value("background_agent_stale_flipped_total") == len(flips)

    outcomes = found.named("background_agent_reconciled_total").items()
    follows = changed(flipped, reconciled)
    failed = [after for _, after in follows if after == "failed"]
    assert len({*follows}) > 2, "the sample has every shape"
    assert sum(v for labels, v in outcomes if ("outcome", "failed") in labels) == len(failed)
    rolled_back = found.value(
        "background_agent_reconciled_total", outcome="rolled_back", cause="stale_claim"
    )
    assert rolled_back == len(follows) - len(failed)
    assert all(value > 0 for _, value in outcomes), "the sample has every cause"

    gone = reconciled.agents.keys() - reaped.agents.keys()
    kept_by_number = [scope for scope, _ in gone if scope == "tenant/acme"]
    assert found.by("background_agent_reaped_total", "arm") == {
        "keep": len(kept_by_number),
        "max_age": len(gone) - len(kept_by_number),
    }
    assert 0 < len(kept_by_number) < len(gone)

    transcripts = reaped.sessions - released.sessions
    assert found.value("background_agent_sessions_released_total") == len(transcripts) > 0


# Which rows of the journal each series is the sum of.
JOURNALED = {
    "background_agent_reaped_total": "job = 'reap' and arm = %(arm)s",
    "background_agent_stale_flipped_total": "job = 'flip_stale_running' and arm = 'flipped'",
    "background_agent_reconciled_total": "arm = %(outcome)s and cause = %(cause)s",
    "background_agent_lost_race_total": "arm = 'lost_race' and job = %(job)s",
    "background_agent_skipped_total": "arm = 'skipped' and job = %(job)s and cause = %(reason)s",
    "background_agent_sessions_released_total": "arm = 'released'",
    "background_agent_session_release_failures_total": "arm = 'locked'",
    "memory_harvest_rejections_total": "arm = 'rejected' and cause = %(code)s",
    "maintenance_job_runs_total": "arm = 'run' and job = %(job)s and cause = %(outcome)s",
}


def test_every_count_is_the_journals(plain_ledger: tuple[str, Database]) -> None:
    """By hand or by a tick, each series is the sum of the journal's rows of its kind."""
    url, database = plain_ledger
    load_sample(url, database)
    process = process_of(url, SAMPLE_POLICY)
    for job in ("flip_stale_running", "audit_memory"):
        by_hand(process, job)
    for job in ("reconcile_parked", "reap", "release_sessions"):
        for run_id, part in frame.tick(process, job):
            frame.work(process, run_id, part)

    with serving(process) as served:
        counted = {k: v for k, v in full_scrape(served).samples.items() if k[0].endswith("_total")}

    def journal(where: str, **labels: str) -> int:
        query = f"select coalesce(sum(count), 0)::bigint from maintenance.journal where {where}"
        return number(url, query, **labels)

    assert counted == {
        (name, labels): journal(JOURNALED[name], **dict(labels)) for name, labels in counted
    }
    assert {name for name, _ in counted} == set(JOURNALED)
    runs = frozenset({("job", "reap"), ("outcome", "succeeded")})
    assert counted["maintenance_job_runs_total", runs] == 1
    shown_elsewhere = journal("arm in ('absent', 'named', 'suspect')")
    assert sum(counted.values()) == journal("true") - shown_elsewhere, "each count is shown once"


def test_what_was_passed_over_and_what_failed(plain_ledger: tuple[str, Database]) -> None:
    """Somebody holds a checkpoint and a transcript: both are counted, neither is waited for."""
    url, database = plain_ledger
    now = now_ms(url)
    PostgresCheckpointStore(database).put(Checkpoint("a", "held", "expired", updated_at=now))
    put_agent(
        database,
        "p",
        status="parked",
        updated_at=now,
        parked_at=now,
        parked_checkpoint_token="held",
    )
    PostgresSessionStore(database).put(Session("a", "held", now - 9 * 3_600_000))
    put_agent(
        database,
        "t",
        status="completed",
        updated_at=now - 8 * 3_600_000,
        settled_at=now - 8 * 3_600_000,
        session_id="held",
    )
    policy = parse_policy('release_delay = "0s"\n[defaults]\nmax_age = "2h"\n', "test")
    process = process_of(url, policy)
    with psycopg.connect(url) as holder:
        holder.execute("select from checkpoints for update")
        holder.execute("select from agent_sessions for update")
        for job in ("reconcile_parked", "reap", "release_sessions"):
            by_hand(process, job)

    with serving(process) as served:
        found = full_scrape(served)

    skipped = found.value(
        "background_agent_skipped_total", job="reconcile_parked", reason="checkpoint_locked"
    )
    assert skipped == 1
    assert found.value("background_agent_session_release_failures_total") == 1
    assert found.value("background_agent_sessions_released_total") == 0
    assert found.by("background_agent_session_releases", "state")["pending"] == 1


def test_runs_are_timed_and_dated(plain_ledger: tuple[str, Database]) -> None:
    url, database = plain_ledger
    load_sample(url, database)
    process = process_of(url, SAMPLE_POLICY)
    for job in ("reap", "reap", "flip_stale_running"):
        by_hand(process, job)
    # One run of two minutes, and one that failed later than any other.
    (last,) = ask(url, "select max(finished_at) from maintenance.runs where job = 'reap'")[0]
    for run_state, took_ms in (("succeeded", 120_000), ("failed", 700)):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "insert into maintenance.runs"
                " (id, job, requested_by, state, started_at, finished_at)"
                " values (gen_random_uuid(), 'reconcile_parked', 'test', %s, %s, %s)",
                (run_state, 1_796_029_200_000, 1_796_029_200_000 + took_ms),
            )

    with serving(process) as served:
        found = full_scrape(served)

    runs = found.by("maintenance_job_duration_seconds_count", "job")
    assert (runs["reap"], runs["flip_stale_running"], runs["audit_memory"]) == (2, 1, 0)
    within = {
        bound: found.value(
            "maintenance_job_duration_seconds_bucket", job="reconcile_parked", le=bound
        )
        for bound in ("0.5", "1.0", "60.0", "300.0", "+Inf")
    }
    assert within == {"0.5": 0, "1.0": 1, "60.0": 1, "300.0": 2, "+Inf": 2}
    assert found.by("maintenance_job_duration_seconds_sum", "job")["reconcile_parked"] == 120.7
    completed = found.by("maintenance_job_last_completed_timestamp_seconds", "job")
    assert isinstance(last, int)
    assert completed["reap"] == last / 1000
    assert completed["reconcile_parked"] == 1_796_029_320
    assert completed["release_sessions"] == 0
    assert found.by("maintenance_job_interval_seconds", "job") == {
        "reap": 15,
        "flip_stale_running": 20,
        "reconcile_parked": 20,
        "release_sessions": 10,
        "drain_harvest": 60,
        "housekeeping": 600,
    }


def test_memory_warnings_come_and_go(
    plain_ledger: tuple[str, Database], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url, _ = plain_ledger
    process = process_of(url, SAMPLE_POLICY)

    def warnings() -> dict[str, float]:
        by_hand(process, "audit_memory")
        with serving(process_of(url, SAMPLE_POLICY)) as served:
            return full_scrape(served).by("memory_boundary_warning", "tag")

    for name in ("REMOTE_EXEC", "MEMORY_PERSISTENCE_CAPABLE", "MEMORY_ENGINE_BACKEND"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MEMORY_ENGINE_DIR", str(tmp_path / "outside"))
    monkeypatch.setenv("WORKSPACE_ROOTS", str(tmp_path / "inside"))
    assert warnings() == {
        "memory_root_outside_write_boundary": 1,
        "memory_remote_lane_write_instruction_dropped": 0,
    }
    monkeypatch.setenv("WORKSPACE_ROOTS", str(tmp_path))
    assert {*warnings().values()} == {0}
    process.close()


def test_no_label_names_a_tenant_or_a_row(plain_ledger: tuple[str, Database]) -> None:
    url, database = plain_ledger
    load_sample(url, database)
    secrets = {
        str(value)
        for row in ask(
            url,
            "select scope, handle, session_id, owner, writer_id, parked_checkpoint_token"
            " from background_agents",
        )
        for value in row
        if value is not None
    }
    process = process_of(url, SAMPLE_POLICY)
    for job in ROW_JOBS:
        by_hand(process, job)

    with serving(process) as served:
        found = full_scrape(served)

    labels = {pair for _, pairs in found.samples for pair in pairs}
    assert {name for name, _ in labels} == LABELS
    assert not {value for _, value in labels} & secrets
    assert not [word for word in secrets if "/" in word and word in found.text]


def test_promtool_finds_nothing_to_complain_of(plain_ledger: tuple[str, Database]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool here: install Debian's package prometheus")
    url, database = plain_ledger
    load_sample(url, database)
    process = process_of(url, SAMPLE_POLICY)
    for job in (*ROW_JOBS, "audit_memory"):
        by_hand(process, job)

    with serving(process) as served:
        found = full_scrape(served)

    lint = subprocess.run(
        [promtool, "check", "metrics"],
        input=found.text,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (lint.returncode, lint.stdout, lint.stderr) == (0, "", "")


def test_scrapes_side_by_side_while_jobs_run(plain_ledger: tuple[str, Database]) -> None:
    """Nobody's counters ever fall, and in the end they are the journal's."""
    url, database = plain_ledger
    load_sample(url, database)
    process = process_of(url, SAMPLE_POLICY)
    enough = 10

    with serving(process) as served, ThreadPoolExecutor(8) as pool:

        def scrape_on() -> list[Scrape]:
            return [scrape(served) for _ in range(enough)]

        series = [pool.submit(scrape_on) for _ in range(8)]
        for job in ROW_JOBS:
            by_hand(process, job)
        seen = [future.result(60) for future in series]
        connections = number(
            url,
            "select count(*) from pg_stat_activity where datname = current_database()"
            " and application_name = 'sema-maintenance' and pid <> pg_backend_pid()",
        )

    for scrapes in seen:
        assert len(scrapes) == enough
        for earlier, later in itertools.pairwise(scrapes):
            assert later.value("maintenance_store_up") == 1
            fallen = [k for k, v in earlier.counters().items() if later.counters()[k] < v]
            assert fallen == []
    # The fixture's, the jobs' and the exporter's three, not one for every scrape.
    assert connections <= 4 + 4 + 3
    with serving(process_of(url, Policy.empty())) as afresh:
        reaped = sum(full_scrape(afresh).by("background_agent_reaped_total", "arm").values())
    assert reaped == number(
        url,
        "select sum(count)::bigint from maintenance.journal where job = 'reap' and arm <> 'run'",
    )
