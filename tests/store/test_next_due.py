"""A scope is found by the first tick after something in it is due, in whatever way that came about.

Ticks are at times of the test's own, mostly ten minutes apart; a look at all scopes is an hour's.
"""

from dataclasses import replace

import pytest

from store.agents import PostgresAgentStore
from store.database import Database
from store.guards import Guards
from store.next_due import SKEW
from store.records import AgentRecord, clear_revived_row_terminal_payload
from store.retention import RetentionPolicy
from tests.store.looking import HOUR, MINUTE, Worker, noted
from tests.store.stores import NOW, SCOPE, agent, ended

SKEW_MS = int(SKEW.total_seconds() * 1000)
AN_HOUR = RetentionPolicy(max_age_ms=HOUR)
KEEP_TWO = RetentionPolicy(keep=2)


@pytest.fixture
def rows(database: Database) -> PostgresAgentStore:
    """The ledger's rows, in every layout."""
    return PostgresAgentStore(database)


def settle(rows: PostgresAgentStore, handle: str, at: int) -> None:
    """Its writer ends a running row."""
    row = rows.get(handle, SCOPE)
    assert row is not None
    done = replace(row, status="completed", settled_at=at, updated_at=at)
    assert rows.update(handle, SCOPE, done, row.rev)


def revive(rows: PostgresAgentStore, handle: str, at: int) -> None:
    """The same handle begins a new cycle."""
    row: AgentRecord | None = rows.get(handle, SCOPE)
    assert row is not None
    running = replace(row, status="running", updated_at=at)
    clear_revived_row_terminal_payload(running)
    assert rows.update(handle, SCOPE, running, row.rev)


# The age arm


def test_row_is_found_at_the_millisecond_after_its_age(
    database: Database, rows: PostgresAgentStore
) -> None:
    """Strictly older: at its age exactly it is not due."""
    worker = Worker(database, AN_HOUR)
    rows.put(ended(settled_ms_ago=0))
    assert worker.tick(NOW + 50 * MINUTE) == []

    assert worker.tick(NOW + HOUR, chunks_of_all=0) == []
    assert worker.tick(NOW + HOUR + 1, chunks_of_all=0) == [SCOPE]


def test_age_with_a_fraction_of_a_millisecond_is_found_at_the_next_whole_one(
    database: Database, rows: PostgresAgentStore
) -> None:
    worker = Worker(database, RetentionPolicy(max_age_ms=HOUR + 0.5))
    rows.put(ended())
    assert worker.tick(NOW) == []

    assert worker.tick(NOW + HOUR, chunks_of_all=0) == []
    assert worker.tick(NOW + HOUR + 1, chunks_of_all=0) == [SCOPE]


@pytest.mark.parametrize("age", [10**30, 2.0**80, 9.3e18])
def test_age_beyond_all_times_never_comes(
    database: Database, rows: PostgresAgentStore, age: float
) -> None:
    worker = Worker(database, RetentionPolicy(max_age_ms=age))
    rows.put(ended(settled_ms_ago=10 * HOUR))

    assert worker.tick(NOW) == []
    assert worker.tick(NOW + 10 * MINUTE) == []


def test_row_that_settles_later_is_found_when_its_time_comes(
    database: Database, rows: PostgresAgentStore
) -> None:
    """In a scope that had nothing at the last look at all of them."""
    worker = Worker(database, AN_HOUR)
    rows.put(agent())
    assert worker.tick(NOW) == []
    settle(rows, "a-1", NOW + 5 * MINUTE)

    for minutes in range(10, 60, 10):
        assert worker.tick(NOW + minutes * MINUTE, chunks_of_all=0) == []
    assert worker.tick(NOW + 65 * MINUTE, chunks_of_all=0) == []
    assert worker.tick(NOW + 65 * MINUTE + 1, chunks_of_all=0) == [SCOPE]


def test_scope_that_is_new_is_found_as_soon_as_it_is_due(
    database: Database, rows: PostgresAgentStore
) -> None:
    """Long before the next look at all scopes, where its age is short."""
    worker = Worker(database, RetentionPolicy(max_age_ms=5 * MINUTE))
    assert worker.tick(NOW) == []
    rows.put(ended(scope="new", settled_ms_ago=-MINUTE))

    assert worker.tick(NOW + 2 * MINUTE) == []
    assert worker.tick(NOW + 6 * MINUTE + 1) == ["new"]


@pytest.mark.parametrize("off_ms", [-20 * MINUTE, 20 * MINUTE])
def test_row_of_a_writer_whose_clock_is_off_is_found_by_the_time_it_gave(
    database: Database, rows: PostgresAgentStore, off_ms: int
) -> None:
    worker = Worker(database, AN_HOUR)
    rows.put(agent())
    rows.put(ended("old", settled_ms_ago=0))
    assert worker.tick(NOW) == []
    settle(rows, "a-1", NOW + 5 * MINUTE + off_ms)
    rows.delete("old", SCOPE)

    assert worker.tick(NOW + 10 * MINUTE, chunks_of_all=0) == []
    due = NOW + 65 * MINUTE + off_ms
    assert worker.tick(due, chunks_of_all=0) == []
    assert worker.tick(due + 1, chunks_of_all=0) == [SCOPE]


def test_row_without_an_end_is_found_by_its_last_update(
    database: Database, rows: PostgresAgentStore
) -> None:
    worker = Worker(database, AN_HOUR)
    rows.put(ended("dated", settled_ms_ago=0))
    rows.put(ended("undated", settled_at=None, updated_at=NOW - 10 * MINUTE))
    assert worker.tick(NOW) == []

    assert worker.tick(NOW + 50 * MINUTE, chunks_of_all=0) == []
    assert worker.tick(NOW + 50 * MINUTE + 1, chunks_of_all=0) == [SCOPE]


def test_row_written_as_settled_long_ago_is_found_within_the_hour(
    database: Database, rows: PostgresAgentStore
) -> None:
    """An import, or a repair by hand."""
    worker = Worker(database, RetentionPolicy(max_age_ms=10 * HOUR))
    rows.put(ended("fresh"))
    assert worker.tick(NOW) == []
    rows.put(ended("imported", settled_ms_ago=1000 * HOUR))

    assert worker.tick(NOW + HOUR - 1) == []
    assert worker.tick(NOW + HOUR) == [SCOPE]


def test_row_that_was_revived_and_settled_again_is_found_by_its_new_end(
    database: Database, rows: PostgresAgentStore
) -> None:
    worker = Worker(database, AN_HOUR)
    rows.put(ended())
    assert worker.tick(NOW) == []
    revive(rows, "a-1", NOW + 30 * MINUTE)
    assert worker.tick(NOW + HOUR + 1, chunks_of_all=0) == []
    settle(rows, "a-1", NOW + 65 * MINUTE)

    assert worker.tick(NOW + 70 * MINUTE, chunks_of_all=0) == []
    assert worker.tick(NOW + 125 * MINUTE, chunks_of_all=0) == []
    assert worker.tick(NOW + 125 * MINUTE + 1, chunks_of_all=0) == [SCOPE]


# The keep arm


def test_row_beyond_keep_is_found_by_the_tick_after_it_settles(
    database: Database, rows: PostgresAgentStore
) -> None:
    worker = Worker(database, KEEP_TWO)
    for handle in ("a", "b", "c"):
        rows.put(agent(handle))
    assert worker.tick(NOW) == []
    settle(rows, "a", NOW + MINUTE)
    settle(rows, "b", NOW + 2 * MINUTE)
    assert worker.tick(NOW + 10 * MINUTE) == []
    settle(rows, "c", NOW + 11 * MINUTE)

    assert worker.tick(NOW + 20 * MINUTE) == [SCOPE]


def test_excess_that_nobody_deleted_is_found_again_by_every_tick(
    database: Database, rows: PostgresAgentStore
) -> None:
    """Also long after the last row settled: its part was lost, and the one after it, too."""
    worker = Worker(database, KEEP_TWO)
    assert worker.tick(NOW) == []
    for handle in ("a", "b", "c"):
        rows.put(ended(handle, settled_ms_ago=-MINUTE))

    for minutes in (10, 20, 59):
        assert worker.tick(NOW + minutes * MINUTE) == [SCOPE]
    rows.delete("a", SCOPE)
    assert worker.tick(NOW + 59 * MINUTE + 1) == []
    assert noted(database) == {}


def test_excess_of_a_row_without_an_end_is_found_within_the_hour(
    database: Database, rows: PostgresAgentStore
) -> None:
    worker = Worker(database, KEEP_TWO)
    rows.put(ended("a"))
    rows.put(ended("b"))
    assert worker.tick(NOW) == []
    rows.put(ended("undated", settled_at=None, updated_at=NOW))

    assert worker.tick(NOW + HOUR) == [SCOPE]


def test_commit_that_came_late_is_found_by_the_tick_after_it(
    database: Database, rows: PostgresAgentStore
) -> None:
    """It settled before the last tick looked, and ended after."""
    worker = Worker(database, KEEP_TWO)
    assert worker.tick(NOW) == []
    assert worker.tick(NOW + 20 * MINUTE) == []
    for handle in ("a", "b", "c"):
        rows.put(ended(handle, settled_ms_ago=-MINUTE))

    assert worker.tick(NOW + 30 * MINUTE) == [SCOPE]


def test_clock_that_was_set_back_leaves_nothing_out(
    database: Database, rows: PostgresAgentStore
) -> None:
    worker = Worker(database, KEEP_TWO)
    assert worker.tick(NOW + 10 * HOUR) == []
    for handle in ("a", "b", "c"):
        rows.put(ended(handle))

    assert worker.tick(NOW + MINUTE) == [SCOPE]


# Policies


def test_shortened_policy_is_applied_at_once(database: Database, rows: PostgresAgentStore) -> None:
    rows.put(ended(settled_ms_ago=2 * HOUR))
    assert Worker(database, RetentionPolicy(max_age_ms=10 * HOUR)).tick(NOW) == []

    assert Worker(database, AN_HOUR).tick(NOW + MINUTE) == [SCOPE]


def test_keep_that_is_new_in_the_policy_is_applied_at_once(
    database: Database, rows: PostgresAgentStore
) -> None:
    for handle in ("a", "b", "c"):
        rows.put(ended(handle, settled_ms_ago=2 * HOUR))
    assert Worker(database, RetentionPolicy(max_age_ms=10 * HOUR)).tick(NOW) == []

    assert Worker(database, KEEP_TWO).tick(NOW + MINUTE) == [SCOPE]


def test_arm_that_is_gone_from_the_policy_is_not_applied_any_more(
    database: Database, rows: PostgresAgentStore
) -> None:
    rows.put(ended(settled_ms_ago=2 * HOUR))
    rows.put(ended(scope="b", settled_ms_ago=2 * HOUR))
    assert Worker(database, AN_HOUR).tick(NOW) == ["b", SCOPE]

    only_b = Worker(database, lambda scope: AN_HOUR if scope == "b" else None, "only b")
    assert only_b.tick(NOW + MINUTE) == ["b"]
    assert "b" in noted(database)
    assert SCOPE not in noted(database)


def test_workers_with_different_policies_each_find_what_is_due_under_their_own(
    database: Database, rows: PostgresAgentStore
) -> None:
    """In turns, as while a new policy file is rolled out."""
    long, short = Worker(database, RetentionPolicy(max_age_ms=10 * HOUR)), Worker(database, AN_HOUR)
    rows.put(ended(settled_ms_ago=2 * HOUR))
    rows.put(ended(scope="old", settled_ms_ago=20 * HOUR))

    for minutes in (0, 20, 40):
        assert long.tick(NOW + minutes * MINUTE) == ["old"]
        assert sorted(short.tick(NOW + (minutes + 10) * MINUTE)) == ["old", SCOPE]


def test_tick_under_the_older_policy_undoes_nothing_that_a_later_one_noted(
    database: Database, rows: PostgresAgentStore
) -> None:
    """It began first and goes on after the other: its look at all scopes ends there."""
    long, short = Worker(database, RetentionPolicy(max_age_ms=10 * HOUR)), Worker(database, AN_HOUR)
    rows.put(ended(settled_ms_ago=30 * MINUTE))
    rows.put(ended(scope="old", settled_ms_ago=20 * HOUR))
    assert long.tick(NOW) == ["old"]
    going_on = long.begin(NOW + MINUTE)
    assert short.tick(NOW + MINUTE) == ["old"]
    before = noted(database)

    assert [*going_on] == [["old"]]
    assert noted(database) == before
    assert sorted(short.tick(NOW + 31 * MINUTE, chunks_of_all=0)) == ["old", SCOPE]


# What can go wrong


def test_tick_that_died_before_it_handed_anything_out_is_made_up_for_by_the_next(
    database: Database, rows: PostgresAgentStore
) -> None:
    worker = Worker(database, RetentionPolicy(max_age_ms=HOUR, keep=2))
    rows.put(ended("aged", scope="aged", settled_ms_ago=2 * HOUR))
    worker.begin_and_die(NOW)
    for handle in ("a", "b", "c"):
        rows.put(ended(handle, settled_ms_ago=-MINUTE))
    worker.begin_and_die(NOW + 10 * MINUTE)
    worker.begin_and_die(NOW + 20 * MINUTE)

    assert sorted(worker.tick(NOW + 50 * MINUTE, chunks_of_all=0)) == ["aged", SCOPE]


def test_look_at_all_scopes_that_was_stopped_is_gone_on_with_by_the_next_tick(
    database: Database, rows: PostgresAgentStore
) -> None:
    """Chunk after chunk, each found once; and what is known to be due is handed out meanwhile."""
    scopes = _many_scopes(database, 1_200)
    worker = Worker(database, AN_HOUR)

    first = worker.tick(NOW, chunks_of_all=1)
    assert first == scopes[:500]
    second = worker.tick(NOW + MINUTE, chunks_of_all=1)
    assert sorted(second) == scopes[:1000]
    assert sorted(worker.tick(NOW + 2 * MINUTE)) == scopes
    assert sorted(worker.tick(NOW + 3 * MINUTE)) == scopes


def test_scope_due_for_longest_is_handed_out_first(
    database: Database, rows: PostgresAgentStore
) -> None:
    worker = Worker(database, AN_HOUR)
    for place, scope in enumerate(("c", "a", "b")):
        rows.put(ended(scope=scope, settled_ms_ago=40 * MINUTE - place))
    assert worker.tick(NOW) == []

    assert worker.tick(NOW + 25 * MINUTE) == ["c", "a", "b"]


# Guards


def test_rows_of_an_implausible_time_are_looked_at_once_an_hour(
    database: Database, rows: PostgresAgentStore
) -> None:
    """They are to be counted then; in between they do not make their scope due."""
    worker = Worker(database, AN_HOUR, guards=Guards())
    rows.put(ended(scope="seconds", settled_at=NOW // 1000))
    rows.put(ended(scope="future", settled_at=NOW + 100 * HOUR))
    rows.put(ended(scope="undated", settled_at=None, updated_at=NOW // 1000))
    rows.put(ended(scope="no policy", settled_ms_ago=-MINUTE))
    odd = ["future", "seconds", "undated"]

    assert worker.tick(NOW + 2 * MINUTE) == odd
    assert worker.tick(NOW + 12 * MINUTE) == []
    assert worker.tick(NOW + 61 * MINUTE) == []
    assert worker.tick(NOW + 62 * MINUTE) == ["no policy", *odd]


def test_plausible_row_is_found_beside_an_implausible_one(
    database: Database, rows: PostgresAgentStore
) -> None:
    worker = Worker(database, AN_HOUR, guards=Guards())
    rows.put(ended("odd", settled_at=NOW // 1000))
    rows.put(ended("plain"))
    assert worker.tick(NOW) == [SCOPE]

    assert worker.tick(NOW + 59 * MINUTE) == []
    assert worker.tick(NOW + HOUR + 1, chunks_of_all=0) == [SCOPE]


def _many_scopes(database: Database, count: int) -> list[str]:
    """So many scopes with a row each that is due."""
    with database.transaction() as tx:
        tx.script(
            "insert into ledger.background_agents (scope, handle, rev, status, owner,"
            " session_scoped, writer_id, spawned_at, updated_at, settled_at)"
            " select 's' || lpad(n::text, 5, '0'), 'a', 1, 'failed', 'o', false, 'w', 1, 1,"
            f" {NOW - 2 * HOUR} from generate_series(1, {count}) n"
        )
    return [f"s{n:05}" for n in range(1, count + 1)]
