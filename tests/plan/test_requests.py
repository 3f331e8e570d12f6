"""What every poll and every part asks costs what is open, however much has been asked before."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from store import requests, runs
from store.database import Database
from tests.conftest import Servers
from tests.plan.explaining import ExplainingDatabase
from tests.store.run_records import UNFINISHED, UNHEARD
from worker.jobs import JOBS

# A year of a busy operator, and what is open at this moment.
_HISTORY = """
    insert into maintenance.runs (id, job, slot, requested_by, state, started_at, finished_at)
        select gen_random_uuid(), 'reap', case when n % 2 = 0 then n end, 'ada', 'succeeded', n, n
        from generate_series(1, 20000) n;
    insert into maintenance.run_parts (run_id, part, state, started_at, finished_at)
        select id, part, 'succeeded', 1, 2 from maintenance.runs, generate_series(0, 2) part;
    insert into maintenance.requests
        (id, job, requested_by, requested_at, state, taken_at, run_id)
        select gen_random_uuid(), 'reap', 'ada', started_at, 'taken', started_at, id
        from maintenance.runs where slot is null;
    update maintenance.runs r set request_id = q.id
        from maintenance.requests q where q.run_id = r.id;
    insert into maintenance.requests (id, job, requested_by, requested_at)
        select gen_random_uuid(), 'reap', 'ada', n from generate_series(1, 5) n;
    insert into maintenance.runs (id, job, requested_by, state, started_at)
        select gen_random_uuid(), 'reap', 'ada', 'running', n from generate_series(1, 5) n;
    insert into maintenance.run_parts (run_id, part, state, queued_at)
        select id, part, 'queued', 1 from maintenance.runs, generate_series(0, 9) part
        where state = 'running';
"""
INDEXES = {
    "requests_waiting": {"requests_queued"},
    "requests_not_taken": {"requests_not_taken"},
    "requests_of_runs": {"runs_pkey", "requests_pkey"},
    "requests_find": {"requests_pkey"},
    "request_lock": {"requests_pkey"},
    "request_settle": {"requests_pkey"},
    "unheard_parts": {"runs_open", "run_parts_pkey"},
    "lose_parts": {"runs_open", "run_parts_pkey"},
    "runs_over": {"runs_open", "run_parts_pkey"},
    "start_part": {"runs_pkey", "run_parts_pkey"},
    "carry_on": {"run_parts_pkey"},
}


@pytest.fixture(scope="module", params=["15", "18"], ids=lambda version: f"pg{version}")
def explained(servers: Servers, request: pytest.FixtureRequest) -> Iterator[ExplainingDatabase]:
    """The database after everything was asked of it that a poll, a part or history asks."""
    url, _ = servers.ledger(request.param, "plain")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_HISTORY.encode())
        connection.execute("vacuum analyze")
        [waiting], [open_run] = (
            connection.execute(query).fetchone() or ()
            for query in (
                b"select id from maintenance.requests where state = 'queued' limit 1",
                b"select id from maintenance.runs where state = 'running' limit 1",
            )
        )
    with closing(ExplainingDatabase(url)) as database:
        _ask_everything(database, waiting, open_run)
        yield database


def _ask_everything(database: Database, waiting: UUID, open_run: UUID) -> None:
    minute = timedelta(minutes=1)
    known: dict[str, Any] = {"jobs": [*JOBS], "guards": [], "expires": timedelta(days=1)}
    assert len(requests.waiting(database, minute, 20, **known)) == 5
    assert len(requests.not_taken(database, None, 20)) == 5
    assert len(requests.send_again(database, minute, 1000, ["reap"])) == 50
    assert requests.find(database, waiting) is not None
    assert requests.take(database, waiting, uuid4(), lambda *_: "no") is not None
    part = runs.start_part(database, open_run, 1, ["reap"])
    assert part is not None
    assert requests.carry_on(database, part) is None
    requests.of_runs(database, [open_run])
    runs.lose_parts(database, None, UNHEARD, UNFINISHED)


@pytest.mark.parametrize("statement", sorted(INDEXES))
def test_statement_uses_its_indexes_and_reads_no_history(
    explained: ExplainingDatabase, statement: str
) -> None:
    assert explained.plans[statement]
    for plan in explained.plans[statement]:
        assert plan.read_whole == set(), str(plan)
        assert INDEXES[statement] <= plan.indexes, str(plan)
