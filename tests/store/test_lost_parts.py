"""Parts that never came back, and runs by hand, which nobody else may take for such."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import psycopg
import pytest
from psycopg.rows import dict_row

from store import runs
from store.database import Database
from store.runs import Part, Run
from tests.store.run_records import (
    JOB,
    SECOND,
    UNFINISHED,
    UNHEARD,
    Records,
    by_hand,
    claim,
    finish,
    opened,
)


@pytest.fixture
def records(plain_ledger: tuple[str, Database]) -> Iterator[Records]:
    url, database = plain_ledger
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        yield Records(url, database, connection)


@pytest.mark.parametrize(("short_of", "lost"), [(SECOND * 5, False), (-SECOND, True)])
def test_part_whose_message_must_have_expired_is_lost(
    records: Records, short_of: timedelta, lost: bool
) -> None:
    """Its run ends as failed, and says why."""
    run = opened(records, parts=2, begun=1)
    finish(records.database, run, 1)
    records.age(run, UNHEARD - short_of)

    closed = runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED)

    if lost:
        assert [(each.run_id, each.state) for each in closed] == [(run.run_id, "failed")]
        assert records.parts(run) == {0: "succeeded", 1: "succeeded", 2: "lost"}
        assert records.state(run) == ("failed", "1 parts never came back")
        assert records.journal(run) == {"run/failed": 1}
    else:
        assert closed == []
        assert records.parts(run) == {0: "succeeded", 1: "succeeded", 2: "queued"}
        assert records.state(run) == ("running", None)


@pytest.mark.parametrize(("short_of", "lost"), [(SECOND * 5, False), (-SECOND, True)])
def test_part_whose_process_must_be_gone_is_lost(
    records: Records, short_of: timedelta, lost: bool
) -> None:
    """One that is still within its budget is not, however long its message was under way."""
    run = opened(records, parts=1, begun=1)
    records.age(run, UNFINISHED - short_of)

    closed = runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED)

    assert [each.run_id for each in closed] == ([run.run_id] if lost else [])
    assert records.parts(run) == {0: "succeeded", 1: "lost" if lost else "running"}


def test_lost_part_is_not_begun_when_its_message_comes_after_all(records: Records) -> None:
    run = opened(records, parts=1)
    records.age(run, UNHEARD + SECOND)
    runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED)

    assert runs.start_part(records.database, run.run_id, 1) is None
    assert records.parts(run) == {0: "succeeded", 1: "lost"}


def test_part_that_ends_after_it_was_given_up_does_not_close_its_run_again(
    records: Records,
) -> None:
    run = opened(records, parts=1, begun=1)
    records.age(run, UNFINISHED + SECOND)
    runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED)

    assert finish(records.database, run, 1) is None

    assert records.state(run) == ("failed", "1 parts never came back")
    assert records.journal(run) == {"run/failed": 1}


def test_error_of_a_part_says_more_than_the_loss_of_another(records: Records) -> None:
    run = opened(records, parts=2, begun=1)
    finish(records.database, run, 1, "failed", error="a privilege is missing")
    records.age(run, UNHEARD + SECOND)

    (closed,) = runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED)

    assert (closed.state, closed.error) == ("failed", "a privilege is missing")


def test_another_jobs_parts_are_its_own_business(records: Records) -> None:
    run = opened(records, parts=1)
    records.age(run, UNFINISHED * 2)

    assert runs.lose_parts(records.database, "flip_stale_running", UNHEARD, UNFINISHED) == []

    assert records.parts(run) == {0: "succeeded", 1: "queued"}


def test_tick_whose_process_died_before_it_was_cut_is_no_success(records: Records) -> None:
    """Nobody looked for what was due: a worker that dies there each time must not look well."""
    run = claim(records.database)
    assert run is not None
    records.age(run, UNFINISHED + SECOND)

    closed = runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED)

    assert [each.state for each in closed] == ["failed"]
    assert records.journal(run) == {"run/failed": 1}


@pytest.mark.parametrize("begun", [claim, None], ids=["tick", "by hand"])
def test_run_that_is_still_looking_for_what_is_due_is_left_open(
    records: Records, begun: Callable[[Database], Run | None] | None
) -> None:
    """It has no parts yet; once it is closed, nobody would see how those parts ended."""
    run = by_hand(records) if begun is None else begun(records.database)
    assert run is not None
    records.age(run, UNHEARD * 2)

    assert runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED) == []

    assert records.state(run) == ("running", None)


def test_run_that_was_over_when_its_giver_up_died_is_closed_by_the_next(records: Records) -> None:
    """Killed between two transactions: the parts are lost already, and the run is still open."""
    run = opened(records, parts=1)
    records.do("update maintenance.run_parts set state = 'lost' where part = 1")
    records.age(run, UNFINISHED + SECOND)

    closed = runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED)

    assert [(each.run_id, each.state) for each in closed] == [(run.run_id, "failed")]


def test_two_ticks_that_give_up_the_same_parts_close_the_run_once(records: Records) -> None:
    run = opened(records, parts=2, begun=1)
    records.age(run, UNFINISHED + SECOND)

    closed = records.race(
        "select * from maintenance.run_parts for update",
        *[lambda database: runs.lose_parts(database, JOB, UNHEARD, UNFINISHED)] * 2,
    )

    assert [each.run_id for found in closed for each in found] == [run.run_id]
    assert records.journal(run) == {"run/failed": 1}


# By hand


def test_run_by_hand_does_its_parts_itself_and_nobody_takes_one_from_it(records: Records) -> None:
    run = by_hand(records)

    part = runs.begin_part(records.database, run, 1, ["a", "b"])

    assert part == Part(run.run_id, 1, JOB, ("a", "b"))
    assert runs.start_part(records.database, run.run_id, 1) is None
    assert runs.start_part(records.database, run.run_id, 0) is None
    assert runs.finish_part(records.database, part, "succeeded") is None
    over = runs.end_handing_out(records.database, run)
    assert over is not None
    assert (over.state, over.slot, over.requested_by) == ("succeeded", None, "ada")
    assert records.journal(run) == {"run/succeeded": 1}


def test_run_by_hand_may_take_for_hours_if_each_of_its_parts_does_not(records: Records) -> None:
    run = by_hand(records)
    for number in range(1, 4):
        records.age(run, UNFINISHED - SECOND * 5)
        assert runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED) == []
        part = runs.begin_part(records.database, run, number, ["a"])
        assert runs.finish_part(records.database, part, "succeeded") is None

    over = runs.end_handing_out(records.database, run)

    assert over is not None
    assert over.state == "succeeded"


def test_run_by_hand_whose_process_is_gone_is_given_up(records: Records) -> None:
    run = by_hand(records)
    runs.begin_part(records.database, run, 1, ["a"])
    records.age(run, UNFINISHED + SECOND)

    closed = runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED)

    assert [(each.run_id, each.state) for each in closed] == [(run.run_id, "failed")]
    assert records.parts(run) == {0: "lost", 1: "lost"}
    assert runs.end_handing_out(records.database, run) is None
    assert records.journal(run) == {"run/failed": 1}


def test_what_went_wrong_while_looking_for_work_is_the_runs_error(records: Records) -> None:
    run = by_hand(records)

    over = runs.end_handing_out(records.database, run, "a privilege is missing")

    assert over is not None
    assert (over.state, over.error) == ("failed", "a privilege is missing")
