"""Operators' requests as rows: taken once, refused on record, never forgotten half-way."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.rows import dict_row

from store import requests, runs
from store.database import Database
from store.requests import Request, Taken
from store.runs import Part, Run
from tests.store.run_records import JOB, SECOND, UNFINISHED, UNHEARD, Records, opened

LIFETIME = timedelta(minutes=2)
FORGOTTEN = timedelta(hours=1)


@pytest.fixture
def records(plain_ledger: tuple[str, Database]) -> Iterator[Records]:
    url, database = plain_ledger
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        yield Records(url, database, connection)


def placed(records: Records, scopes: list[str] | None = None) -> UUID:
    request_id = uuid4()
    requests.place(
        records.database,
        request_id,
        JOB,
        scopes,
        policy={"keep": 3},
        overrides=["floors"],
        requested_by="ada@ops",
    )
    return request_id


def take(database: Database, request_id: UUID, problem: str | None = None) -> Taken | None:
    return requests.take(database, request_id, uuid4(), lambda *_: problem)


def taken(records: Records, parts: int = 2, *, begun: int = 0) -> Run:
    """The run of a request, cut into parts of a scope each, the first of which have begun."""
    found = take(records.database, placed(records))
    assert found is not None
    assert found.run is not None
    runs.cut(records.database, found.run, [f"scope {n}" for n in range(parts)], 1)
    for part in range(1, begun + 1):
        assert runs.start_part(records.database, found.run.run_id, part) is not None
    return found.run


def let_wait(records: Records, run: Run, span: timedelta) -> None:
    """Let the messages of the run's parts have been sent that much earlier."""
    ms = span // timedelta(milliseconds=1)
    records.do(
        "update maintenance.run_parts set queued_at = queued_at - %s where run_id = %s",
        ms,
        run.run_id,
    )


def test_request_is_taken_with_all_it_says_and_the_run_says_who_asked(records: Records) -> None:
    request_id = placed(records, ["b", "a"])

    found = take(records.database, request_id)

    assert found is not None
    assert found.run is not None
    asked = found.request
    assert (asked.job, asked.scopes, asked.policy) == (JOB, ("b", "a"), {"keep": 3})
    run = found.run
    assert (run.job, run.requested_by, run.overrides) == (JOB, "ada@ops", ("floors",))
    assert records.parts(run) == {0: "running"}
    on_record = requests.find(records.database, request_id)
    assert on_record is not None
    assert (on_record.state, on_record.run_id, on_record.error) == ("taken", run.run_id, None)
    assert requests.of_runs(records.database, [run.run_id]) == {run.run_id: on_record}
    assert requests.not_taken(records.database, None, 10) == []


def test_request_is_taken_once(records: Records) -> None:
    """By two workers at the same moment, and by a message that comes again later."""
    request_id = placed(records)

    found = records.race(
        "select * from maintenance.requests for update",
        *[lambda database: take(database, request_id)] * 4,
    )

    assert len([each for each in found if each is not None]) == 1
    assert take(records.database, request_id) is None
    assert len(runs.list_runs(records.database, JOB, 10)) == 1


def test_request_that_cannot_be_done_is_refused_on_record(records: Records) -> None:
    request_id = placed(records)

    found = take(records.database, request_id, "there is no such job")

    assert found is not None
    assert (found.run, found.error) == (None, "there is no such job")
    assert runs.list_runs(records.database, None, 10) == []
    [refused] = requests.not_taken(records.database, JOB, 10)
    assert (refused.request_id, refused.state) == (request_id, "refused")
    assert refused.error == "there is no such job"
    assert refused.taken_at is not None
    assert take(records.database, request_id) is None


def test_request_that_nobody_placed_is_nobodys(records: Records) -> None:
    assert take(records.database, uuid4()) is None
    assert requests.find(records.database, uuid4()) is None


def test_taker_that_dies_leaves_the_request_to_the_next(records: Records) -> None:
    """State and run are one transaction: there is no request without one of them."""
    request_id = placed(records)

    def die(_: Request, __: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        requests.take(records.database, request_id, uuid4(), die)

    assert runs.list_runs(records.database, None, 10) == []
    assert take(records.database, request_id) is not None


def test_requests_that_wait_are_found_the_oldest_first_and_young_ones_left_to_their_message(
    records: Records,
) -> None:
    old, older, young = placed(records), placed(records), placed(records)
    for request_id, ms in ((old, 10_000), (older, 20_000)):
        records.do(
            "update maintenance.requests set requested_at = requested_at - %s where id = %s",
            ms,
            request_id,
        )
    take(records.database, gone := placed(records))

    waiting = partial(
        requests.waiting,
        records.database,
        jobs=["reap"],
        guards=["floors"],
        expires=timedelta(days=1),
    )
    assert waiting(timedelta(seconds=5), 10) == [older, old]
    assert waiting(timedelta(seconds=5), 1) == [older]
    assert gone not in waiting(timedelta(0), 10)
    assert young != old


# The parts of a request


def test_part_carries_the_request_it_belongs_to(records: Records) -> None:
    run = taken(records)

    part = runs.start_part(records.database, run.run_id, 1, [JOB])

    assert part is not None
    assert (part.policy, part.overrides) == ({"keep": 3}, ("floors",))
    assert part.request_id is not None


def test_part_of_a_tick_belongs_to_none(records: Records) -> None:
    run = opened(records, parts=1)

    assert runs.start_part(records.database, run.run_id, 1) == Part(
        run.run_id, 1, JOB, ("scope 0",)
    )


def test_part_of_a_job_that_only_another_release_knows_is_left_to_it(records: Records) -> None:
    run = taken(records, 1)

    assert runs.start_part(records.database, run.run_id, 1, ["flip_stale_running"]) is None

    assert records.parts(run)[1] == "queued"
    let_wait(records, run, LIFETIME + SECOND)
    assert requests.send_again(records.database, LIFETIME, 10, ["flip_stale_running"]) == []
    assert requests.send_again(records.database, LIFETIME, 10, [JOB]) == [(run.run_id, 1)]
    assert runs.start_part(records.database, run.run_id, 1, [JOB]) is not None


def test_parts_whose_message_has_expired_are_sent_again_once_each_time(records: Records) -> None:
    run = taken(records, 3, begun=1)
    assert requests.send_again(records.database, LIFETIME, 10, [JOB]) == []
    let_wait(records, run, LIFETIME + SECOND)

    assert requests.send_again(records.database, LIFETIME, 1, [JOB]) == [(run.run_id, 2)]
    assert requests.send_again(records.database, LIFETIME, 10, [JOB]) == [(run.run_id, 3)]
    assert requests.send_again(records.database, LIFETIME, 10, [JOB]) == []


def test_parts_of_a_tick_are_never_sent_again(records: Records) -> None:
    """The next tick finds their work; to send them as well would do it twice as often."""
    run = opened(records, parts=2)
    let_wait(records, run, timedelta(days=3))

    assert requests.send_again(records.database, LIFETIME, 10, [JOB]) == []


def test_what_is_left_of_a_part_is_one_more_part(records: Records) -> None:
    run = taken(records, 2, begun=1)
    part = Part(run.run_id, 1, JOB, ("scope 0",))

    assert requests.carry_on(records.database, part) == 3

    assert records.parts(run) == {0: "succeeded", 1: "succeeded", 2: "queued", 3: "queued"}
    rest = runs.start_part(records.database, run.run_id, 3)
    assert rest is not None
    assert rest.scopes == ("scope 0",)
    assert requests.carry_on(records.database, part) is None
    assert records.state(run) == ("running", None)


def test_part_that_was_given_up_is_not_carried_on(records: Records) -> None:
    """Its run is over, and whoever asked was told so."""
    run = taken(records, 1, begun=1)
    records.age(run, UNFINISHED + SECOND)
    runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED)

    assert requests.carry_on(records.database, Part(run.run_id, 1, JOB, ("scope 0",))) is None

    assert records.parts(run) == {0: "succeeded", 1: "lost"}
    assert records.state(run)[0] == "failed"


# Giving up


def test_queued_part_of_a_request_outlives_a_period_but_not_for_ever(records: Records) -> None:
    """Its message is sent again, so that it only waits for its turn."""
    run = taken(records, 1)
    records.age(run, UNHEARD * 10)
    assert runs.lose_parts(records.database, JOB, UNHEARD, UNFINISHED, FORGOTTEN) == []
    assert runs.lose_parts(records.database, None, UNHEARD, UNFINISHED, FORGOTTEN) == []

    let_wait(records, run, FORGOTTEN + SECOND)
    [closed] = runs.lose_parts(records.database, None, UNHEARD, UNFINISHED, FORGOTTEN)

    assert (closed.run_id, closed.state) == (run.run_id, "failed")
    assert closed.error == "1 parts never came back"


@pytest.mark.parametrize("job", [JOB, None], ids=["tick of its job", "poll"])
@pytest.mark.parametrize("cut", [False, True], ids=["while looking", "while working"])
def test_run_of_a_request_whose_process_died_is_given_up_on_record(
    records: Records, job: str | None, cut: bool
) -> None:
    if cut:
        run = taken(records, 1, begun=1)
    else:
        found = take(records.database, placed(records))
        assert found is not None
        assert found.run is not None
        run = found.run
    records.age(run, UNFINISHED + SECOND)

    closed = runs.lose_parts(records.database, job, UNHEARD, UNFINISHED, FORGOTTEN)

    assert [(each.run_id, each.state) for each in closed] == [(run.run_id, "failed")]
    assert records.state(run) == ("failed", "1 parts never came back")


def test_poll_leaves_the_runs_of_ticks_to_their_own_jobs(records: Records) -> None:
    run = opened(records, parts=2, begun=1)
    records.age(run, UNFINISHED * 10)

    assert runs.lose_parts(records.database, None, UNHEARD, UNFINISHED, FORGOTTEN) == []

    assert records.parts(run) == {0: "succeeded", 1: "running", 2: "queued"}
