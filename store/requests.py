"""Operators' requests: what somebody asks the workers to do, on record before anything is done.

The row is the request. A message only names it, so that whoever can publish to the broker can ask
for nothing that does not stand here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from psycopg.rows import DictRow

from store.database import Database
from store.runs import Part, Run, clock, open_asked


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked. Times are milliseconds since the Unix epoch; `scopes` None: all there are.

    `policy` is JSON as it stands in the row, not judged yet; None: the worker's policy file.
    `state` is queued, taken (by the run `run_id`) or refused (`error` says why).
    """

    request_id: UUID
    job: str
    scopes: tuple[str | None, ...] | None
    policy: Any
    overrides: tuple[str | None, ...]
    requested_by: str
    requested_at: int
    state: str = "queued"
    taken_at: int | None = None
    run_id: UUID | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """A request that is no longer queued; without a run it was refused."""

    request: Request
    run: Run | None
    error: str | None = None


class LeftToOthers(Exception):
    """The request is for another release to judge; it stays queued."""


_MS: Final = timedelta(milliseconds=1)
# What no policy of a request is longer than, in characters.
_POLICY_MAX: Final = 10_000


def _request(row: DictRow) -> Request:
    scopes = row.pop("scopes")
    return Request(
        request_id=row.pop("id"),
        scopes=None if scopes is None else tuple(scopes),
        policy=_read(row.pop("policy")),
        overrides=tuple(row.pop("overrides")),
        **row,
    )


def _read(policy: str | None) -> Any:
    """The policy of a row; one that cannot be read is a text, which no policy is."""
    if policy is None:
        return None
    if len(policy) > _POLICY_MAX:
        return "too long"
    try:
        return json.loads(policy)
    except (ValueError, RecursionError):
        return "unreadable"


def place(
    database: Database,
    request_id: UUID,
    job: str,
    scopes: Sequence[str] | None,
    *,
    policy: Mapping[str, object] | None,
    overrides: Sequence[str],
    requested_by: str,
) -> None:
    """Put a request on record. From here on it stands, whether or not a message follows."""
    with database.transaction() as tx:
        tx.do(
            "request_add",
            {
                "id": request_id,
                "job": job,
                "scopes": None if scopes is None else list(scopes),
                "policy": None if policy is None else json.dumps(policy),
                "overrides": list(overrides),
                "requested_by": requested_by,
                "now": clock(tx),
            },
        )


def take(
    database: Database,
    request_id: UUID,
    run_id: UUID,
    problem_of: Callable[[Request, int], str | None],
) -> Taken | None:
    """Take a queued request and open its run, in one transaction; None: nobody's to take.

    `problem_of` says, of the request at the database's time, why it cannot be done: it is then
    refused on record, with that sentence, and there is no run. It raises LeftToOthers for one that
    is not this release's to judge.
    """
    try:
        return _take(database, request_id, run_id, problem_of)
    except LeftToOthers:
        return None


def _take(
    database: Database,
    request_id: UUID,
    run_id: UUID,
    problem_of: Callable[[Request, int], str | None],
) -> Taken | None:
    with database.transaction() as tx:
        row = tx.one("request_lock", {"id": request_id})
        if row is None:
            return None
        request = _request(row)
        now = clock(tx)
        error = problem_of(request, now)
        run = None
        if error is None:
            lifted = [each for each in request.overrides if each is not None]
            run = open_asked(
                tx,
                request.job,
                request.requested_by,
                lifted,
                run_id,
                request_id=request_id,
                policy=request.policy,
            )
        tx.do(
            "request_settle",
            {
                "id": request_id,
                "state": "refused" if run is None else "taken",
                "run_id": None if run is None else run.run_id,
                "error": error,
                "now": now,
            },
        )
    return Taken(request, run, error)


def refuse(database: Database, request_id: UUID, error: str) -> None:
    """Refuse a request that cannot even be judged, if it is still queued."""
    with database.transaction() as tx:
        params = {"id": request_id, "state": "refused", "run_id": None, "error": error}
        tx.do("request_settle", {**params, "now": clock(tx)})


def waiting(
    database: Database,
    longer_than: timedelta,
    limit: int,
    *,
    jobs: Collection[str],
    guards: Collection[str],
    expires: timedelta,
) -> list[UUID]:
    """Requests that have been queued for so long that their message was lost, the oldest first.

    Those of other jobs, or that lift other guards, only once nobody took them until they expired.
    """
    with database.transaction(read_only=True) as tx:
        now = clock(tx)
        params = {
            "before": now - longer_than // _MS,
            "expired_before": now - expires // _MS,
            "jobs": [*jobs],
            "guards": [*guards],
            "limit": limit,
        }
        rows = tx.rows("requests_waiting", params)
    return [row["id"] for row in rows]


def send_again(
    database: Database, unheard: timedelta, limit: int, jobs: Collection[str]
) -> list[tuple[UUID, int]]:
    """Parts of requests for these jobs whose message has expired, for the caller alone to send."""
    with database.transaction() as tx:
        now = clock(tx)
        params = {"now": now, "sent_before": now - unheard // _MS, "jobs": [*jobs]}
        rows = tx.rows("unheard_parts", {**params, "limit": limit})
    return sorted((row["run_id"], row["part"]) for row in rows)


def carry_on(database: Database, part: Part) -> int | None:
    """End a part whose turn is over and queue one more for what is left; gives its number.

    None: the part was given up as lost meanwhile.
    """
    with database.transaction() as tx:
        tx.one("lock_run", {"run_id": part.run_id})
        row = tx.one("carry_on", {"run_id": part.run_id, "part": part.part, "now": clock(tx)})
    return None if row is None else int(row["part"])


def find(database: Database, request_id: UUID) -> Request | None:
    """One request, whatever became of it."""
    with database.transaction(read_only=True) as tx:
        row = tx.one("requests_find", {"id": request_id})
    return None if row is None else _request(row)


def of_runs(database: Database, run_ids: Collection[UUID]) -> dict[UUID, Request]:
    """The requests that these runs were opened for, by run; by hand and by schedule have none."""
    with database.transaction(read_only=True) as tx:
        rows = tx.rows("requests_of_runs", {"run_ids": list(run_ids)})
    return {row["run_id"]: _request(row) for row in rows}


def not_taken(database: Database, job: str | None, limit: int) -> list[Request]:
    """The newest requests that wait or were refused, of one job or of all."""
    with database.transaction(read_only=True) as tx:
        rows = tx.rows("requests_not_taken", {"job": job, "limit": limit})
    return [_request(row) for row in rows]
