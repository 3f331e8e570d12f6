"""A database of its own for each diagnosis, with nothing wrong, to be spoilt and mended."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from store import needs
from store.database import Database, Limits
from store.diagnosis import Deployment, Finding, Thresholds, diagnose
from tests import ledgers
from tests.ledgers import Layout
from worker.readings import PREVIEWED_JOBS
from worker.schedule import entries

SCHEDULE = {job: entry.every for job, entry in entries({}).items()}
NEEDS = needs.worker(tuple(SCHEDULE), PREVIEWED_JOBS, "postgres")
_NOW = "(extract(epoch from clock_timestamp()) * 1000)::bigint"
Findings = dict[str, list[Finding]]


class Diagnosed:
    """One database; every statement is committed at once."""

    def __init__(self, url: str, layout: Layout) -> None:
        self.url = url
        self.schema = "seen" if layout == "view" else "public"
        ledgers.create(url, layout).close()
        self.do(
            f"alter database {self.name} set idle_in_transaction_session_timeout = '10min'",
            f"insert into {self.schema}.checkpoints (scope, token, status, content)"
            " values ('s', 'open', 'pending', '{}')",
        )
        for job, period in SCHEDULE.items():
            self.do(
                "insert into maintenance.schedule values"
                f" ('{job}', {_NOW}, {period.total_seconds() * 1000:.0f})",
                "insert into maintenance.runs (id, job, requested_by, state, started_at,"
                f" finished_at) values (gen_random_uuid(), '{job}', 'schedule', 'succeeded',"
                f" {_NOW}, {_NOW})",
            )

    @property
    def name(self) -> str:
        return f'"{conninfo_to_dict(self.url)["dbname"]}"'

    def do(self, *statements: str) -> None:
        with psycopg.connect(
            self.url, autocommit=True, options="-c default_transaction_read_only=off"
        ) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode()).fetchall()

    def agents(self, count: int, **columns: str) -> None:
        """Place rows of which the columns are SQL; n is the number of each."""
        given = {
            "scope": "'s'",
            "handle": "'h' || n",
            "rev": "1",
            "status": "'completed'",
            "owner": "'o'",
            "session_scoped": "true",
            "writer_id": "'w'",
            "spawned_at": _NOW,
            "updated_at": _NOW,
            "settled_at": _NOW,
            "content": "'{}'",
            **columns,
        }
        self.do(
            f"insert into {self.schema}.background_agents ({', '.join(given)})"
            f" select {', '.join(given.values())} from generate_series(1, {count}) n"
        )

    def look(
        self,
        *,
        url: str | None = None,
        own_time: Callable[[], float] = time.time,
        needed: needs.Needs = NEEDS,
        purpose: str = "worker",
        **thresholds: Any,
    ) -> Findings:
        """Every finding by the name of its check."""
        limits = Thresholds(**thresholds)
        by_check: Findings = defaultdict(list)
        pool = Limits(statement_timeout=limits.statement_timeout, pool_size=1)
        with Database(url or self.url, self.schema, pool) as database:
            deployment = Deployment(needed, SCHEDULE, own_time, purpose, limits)
            for check, finding in diagnose(database, deployment):
                by_check[check].append(finding)
        return by_check

    def mend(self, findings: list[Finding]) -> None:
        """Run every remedy that is an SQL statement; what follows it is a comment."""
        statements = [
            remedy.partition("    --")[0]
            for finding in findings
            for remedy in finding.remedies
            if ";" in remedy
        ]
        assert statements
        self.do(*statements)


def spoilt(findings: Findings) -> dict[str, list[Finding]]:
    """The checks that are not all ok, with what they found."""
    return {
        check: bad
        for check, found in findings.items()
        if (bad := [each for each in found if each.state != "ok"])
    }
