"""Harvest rejections from the server's insert to the metric, the warning and the command line."""

import json
import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from config.policy import Policy
from store.batches import Stamp
from store.database import Database
from tasks import drain_harvest
from tests.e2e.command_line import CommandLine
from tests.e2e.placed import Ledger
from tests.e2e.scraping import full_scrape, process_of, serving
from worker import frame
from worker.context import Process

HOSTILE = 'line\nbreak \x1b[2J \x00 "quoted" \u2028 end'.replace("\x00", "\x01")


@pytest.fixture
def ledger(plain_ledger: tuple[str, Database]) -> Iterator[Ledger]:
    with closing(Ledger(plain_ledger[0])) as ledger:
        yield ledger


@pytest.fixture
def process(ledger: Ledger) -> Iterator[Process]:
    process = process_of(ledger.url, Policy.empty(), MAINT_ROWS_PER_BATCH="5")
    yield process
    process.close()


@pytest.fixture
def cli(ledger: Ledger) -> CommandLine:
    return CommandLine(ledger.url)


def rejected(ledger: Ledger, code: str | None, count: int, scope: str | None = "s") -> None:
    """What the server writes for so many rejections."""
    ledger.query(
        "insert into maintenance.harvest_rejections"
        " (event_id, scope, session_id, code, detail, occurred_at)"
        " select gen_random_uuid()::text, %s, 'talk ' || n, %s, 'detail ' || n, 1000 + n"
        " from generate_series(1, %s) n returning 1",
        scope,
        code,
        count,
    )


def ticked(process: Process) -> list[dict[str, Any]]:
    """Run the job's tick with all of its parts."""
    parts = [*frame.tick(process, "drain_harvest")]
    for run_id, part in parts:
        frame.work(process, run_id, part)
    return [{"run": run_id} for run_id, _ in parts]


def test_drain_keeps_the_pace_of_the_process(ledger: Ledger, process: Process) -> None:
    """After each batch it waits for as long as its rows ask for."""
    rejected(ledger, "full", 12)
    paced: list[int] = []
    context = replace(process.context(Stamp(0)), pace=paced.append)

    assert drain_harvest.run(context, None).rejected == 12

    assert paced == [5, 5, 2]


def test_a_tick_counts_announces_and_shows_them(
    ledger: Ledger, process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning per scope and code, whatever the batches; restricted divergence in words."""
    rejected(ledger, "too_large", 12)
    rejected(ledger, "too_large", 1, scope="t")
    rejected(ledger, "restricted_divergence", 7)
    rejected(ledger, "NOT A CODE", 2, scope=None)

    with caplog.at_level(logging.WARNING, "sema_maintenance"):
        assert ticked(process)

    said = [r for r in caplog.records if r.getMessage() == "memory_harvest_rejected"]
    found = {(r.scope, r.code): r for r in said}  # type: ignore[attr-defined]
    assert len(said) == len(found) == 4
    assert {kind: r.count for kind, r in found.items()} == {  # type: ignore[attr-defined]
        ("s", "too_large"): 12,
        ("t", "too_large"): 1,
        ("s", "restricted_divergence"): 7,
        (None, "other"): 2,
    }
    assert {r.levelname for r in said} == {"WARNING"}
    assert found["s", "too_large"].example == {  # type: ignore[attr-defined]
        "session_id": "talk 1",
        "detail": "detail 1",
        "occurred_at": 1001,
    }
    assert found[None, "other"].example["code"] == "NOT A CODE"  # type: ignore[attr-defined]
    meaning = found["s", "restricted_divergence"].meaning  # type: ignore[attr-defined]
    assert "neither adopted nor served" in meaning
    assert not hasattr(found["s", "too_large"], "meaning")

    with serving(process_of(ledger.url, Policy.empty())) as served:
        shown = full_scrape(served)
    assert shown.by("memory_harvest_rejections_total", "code") == {
        "too_large": 13,
        "restricted_divergence": 7,
        "other": 2,
    }
    assert shown.by("background_agents_overdue", "job")["drain_harvest"] == 0
    runs = shown.value("maintenance_job_runs_total", job="drain_harvest", outcome="succeeded")
    assert runs == 1


def test_what_was_counted_is_announced_even_where_the_next_batch_fails(
    ledger: Ledger, process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    """The first five are counted and will not be met again; the sixth cannot be."""
    rejected(ledger, "a", 5)
    rejected(ledger, "poison", 1)
    ledger.do(
        "alter table maintenance.journal add constraint no_poison check (cause is distinct from"
        " 'poison')"
    )
    try:
        with caplog.at_level(logging.WARNING, "sema_maintenance"):
            ticked(process)
    finally:
        ledger.do("alter table maintenance.journal drop constraint no_poison")

    said = [r for r in caplog.records if r.getMessage() == "memory_harvest_rejected"]
    assert [(r.code, r.count) for r in said] == [("a", 5)]  # type: ignore[attr-defined]
    assert ledger.last_run()["state"] == "partial"
    assert ledger.journal()["drain_harvest/rejected/a"] == 5
    assert "drain_harvest/rejected/poison" not in ledger.journal()


def test_by_hand_a_dry_run_first(cli: CommandLine, ledger: Ledger) -> None:
    rejected(ledger, "a", 3)
    rejected(ledger, None, 2, scope="t")
    before = ledger.tables()

    planned = cli.json("drain-harvest", "--all-scopes", "--dry-run")

    assert ledger.tables() == before
    assert planned["rows"] == 5
    assert [(p["scope"], p["arm"], p["cause"], p["rows"]) for p in planned["planned"]] == [
        ("s", "rejected", "a", 3),
        ("t", "rejected", "other", 2),
    ]
    run = cli.json("drain-harvest", "--all-scopes", "--yes")
    assert run["report"] == {"rejected/a": 3, "rejected/other": 2}
    assert cli.json("drain-harvest", "--all-scopes", "--yes")["report"] == {}


def test_by_hand_one_scope(cli: CommandLine, ledger: Ledger) -> None:
    rejected(ledger, "a", 3)
    rejected(ledger, "a", 2, scope="t")
    rejected(ledger, "a", 1, scope=None)

    ended = cli.run("drain-harvest", "--scope", "t")

    assert ended.code == 0
    assert "rejected/a 2" in ended.stdout
    assert "note" not in ended.stderr
    shown = cli.run("drain-harvest", "--all-scopes", "--dry-run").stdout
    assert [line.split()[0] for line in shown.splitlines()] == ["SCOPE", "s", "-", "drain_harvest:"]


def test_counted_rows_go_after_the_setting(cli: CommandLine, ledger: Ledger) -> None:
    rejected(ledger, "a", 4)
    cli.json("drain-harvest", "--all-scopes", "--yes")
    ledger.do("update maintenance.harvest_rejections set counted_at = counted_at - 90000")

    kept = cli.json("drain-harvest", "--all-scopes", "--yes", MAINT_HARVEST_RETENTION="2m")
    gone = cli.json("drain-harvest", "--all-scopes", "--yes", MAINT_HARVEST_RETENTION="1m")

    assert kept["report"] == {}
    assert gone["report"] == {"pruned": 4}
    assert ledger.scalar("select count(*) from maintenance.harvest_rejections") == 0
    assert ledger.journal()["drain_harvest/rejected/a"] == 4


def test_what_a_tenant_wrote_does_no_harm_in_a_log(cli: CommandLine, ledger: Ledger) -> None:
    """A real process, in both forms of the log: one line per warning, nothing a terminal obeys."""
    for form in ("json", "text"):
        ledger.query(
            "insert into maintenance.harvest_rejections (scope, session_id, code, detail)"
            " values (%s, %s, %s, %s) returning 1",
            HOSTILE,
            HOSTILE,
            HOSTILE,
            HOSTILE * 1000,
        )
        process = cli.start("drain-harvest", "--all-scopes", "--yes", MAINT_LOG_FORMAT=form)
        _, written = process.communicate(timeout=60)
        assert process.returncode == 0
        lines = written.decode().rstrip("\n").split("\n")
        [line] = [line for line in lines if "memory_harvest_rejected" in line]
        assert line.isprintable()
        assert len(line) < 5000
        if form == "json":
            said = json.loads(line)
            assert (said["scope"], said["code"], said["count"]) == (HOSTILE, "other", 1)
            assert said["example"]["detail"] == (HOSTILE * 1000)[:500]


def test_housekeeping_by_hand(cli: CommandLine, ledger: Ledger) -> None:
    """It rolls up what an earlier run journaled, and says so by its run alone."""
    rejected(ledger, "a", 3)
    cli.json("drain-harvest", "--all-scopes", "--yes")
    ledger.do(
        "update maintenance.runs set finished_at = finished_at - 90000;"
        " update maintenance.journal set at = at - 90000;"
        " update maintenance.schema_migrations set applied_at = 0"
    )

    run = cli.json("housekeeping", MAINT_JOURNAL_RETENTION="1m")

    assert (run["state"], run["report"]) == ("succeeded", {})
    assert ledger.journal() == {"housekeeping/run/succeeded": 1}
    totals = ledger.query("select * from maintenance.journal_totals where cause = 'a'")
    assert [(row["job"], row["arm"], row["count"]) for row in totals] == [
        ("drain_harvest", "rejected", 3)
    ]
    with serving(process_of(ledger.url, Policy.empty())) as served:
        shown = full_scrape(served)
    assert shown.by("memory_harvest_rejections_total", "code")["a"] == 3
    durations = shown.by("maintenance_job_duration_seconds_count", "job")
    assert (durations["drain_harvest"], durations["housekeeping"]) == (1, 1)
