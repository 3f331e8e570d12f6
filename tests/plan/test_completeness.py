"""Every statement that reads a table is explained in this package, or says why not."""

import re
from importlib import resources

from store.database import AGENT_FRAGMENTS
from store.statements import Statements
from tests.plan import test_idle_tick, test_own_tables, test_requests, test_statements

# The ledger's relations, and the worker's own, where they are not the name of a lock.
LEDGER = re.compile(r'"there"\.(background_agents|checkpoints|agent_sessions)\b')
OWN = re.compile(r"(?<![\w'])maintenance\.[a-z]")
COMMENT = re.compile(r"--.*")
# Statements on own tables that are not explained, by the reason.
WITHOUT = {
    "adds rows, and looks nothing up but conflicts of their own keys": {
        *("add_action", "add_parts", "add_pauses", "add_whole_part", "admit_harvest_codes"),
        *("give_up_scope", "hold_add", "holding_begun", "journal_add", "memory_boundary_add"),
        *("migration_record", "note_next_due", "open_run", "request_add", "sight"),
        *("trip_breakers", "watch_tick"),
    },
    "finds one row, or one a scope, by the primary key": {
        *("advance_scan", "begin_part", "begin_scan", "claim_slot", "finish_part", "lock_run"),
        *("lock_scan", "look_again", "note_settled", "opened_breakers", "tripped_scopes", "watch"),
    },
    "reads what one run has, by journal_by_run and run_parts_pkey": {
        *("finish_run", "held_by_breakers", "refresh_report", "run_progress", "run_skips"),
    },
    "reads what is open, failing, paused or held, of which there is little": {
        *("clear_breakers", "count_holds", "failed_before", "failing_scopes", "holding"),
        *("holding_over", "lift_pauses", "list_breakers", "list_pauses", "open_breakers"),
        "paused_jobs",
    },
    "reads for a person what is on record of one row or its scope": {
        *("row_actions", "row_entries", "row_holds", "row_sightings", "scope_deletions"),
        "scope_failing",
    },
    "reads a table that has a row for each job, code, tag or migration, or one": {
        "identity",
        *("doctor_migrations", "list_harvest_codes", "list_schedule", "memory_boundary_clear"),
        *("memory_boundary_list", "migration_applied", "preflight_migration"),
    },
    "reads as much as it is asked for, newest first or all that is due": {
        *("count_due_releases", "list_releases", "list_runs", "paces", "preview_keep_releases"),
    },
    "reads nothing": {"migration_table", "probe_outbox_locks"},
}


def statements(on: re.Pattern[str]) -> set[str]:
    """The names of those that touch such a relation, by themselves or in a fragment."""
    texts = Statements("there", AGENT_FRAGMENTS)
    names = [
        file.name.removesuffix(".sql")
        for file in resources.files("store").joinpath("sql").iterdir()
        if file.name.endswith(".sql")
    ]
    return {name for name in names if on.search(COMMENT.sub("", texts[name].decode()))}


def test_every_statement_on_the_ledger_is_explained() -> None:
    """A new one needs its index named, or a reason to do without."""
    explained = {*test_statements.INDEXES}

    assert statements(LEDGER) - explained == {*test_statements.WITHOUT}


def test_every_statement_on_own_tables_is_explained() -> None:
    """Just so; one that is explained needs no reason any more."""
    explained = {
        *test_statements.INDEXES,
        *test_own_tables.INDEXES,
        *test_requests.INDEXES,
        *test_idle_tick.WALKED,
        *test_statements.WITHOUT,
    }
    reasons = [name for names in WITHOUT.values() for name in names]

    assert len({*reasons}) == len(reasons)
    assert statements(OWN) - explained == {*reasons}
