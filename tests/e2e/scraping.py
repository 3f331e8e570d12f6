"""What the tests of the metrics do: serve a ledger, scrape it, and look for themselves."""

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from email.message import Message
from pathlib import Path
from typing import Any, Final

import psycopg
from prometheus_client.parser import text_string_to_metric_families

from config.guards import GuardPolicy
from config.policy import Policy, load_policy
from config.settings import load_settings
from store.agents import PostgresAgentStore
from store.checkpoints import PostgresCheckpointStore
from store.contract import Checkpoint, Session
from store.database import Database
from store.records import AgentRecord
from store.sessions import PostgresSessionStore
from worker import manual
from worker.context import Process
from worker.http import Served, serve
from worker.metrics import METRICS
from worker.sample.generator import EXAMPLE_SEED, sample_ledger

LONG_S: Final = 20.0
# WHY without guards: they put off until later what a test means to count now.
UNGUARDED: Final = GuardPolicy(
    sightings=False, outage=False, fresh_flips=False, plausible_times=False
)
SAMPLE_POLICY: Final = replace(
    load_policy(Path(__file__).parents[2] / "worker" / "sample" / "policy.toml"), guards=UNGUARDED
)
ROW_JOBS: Final = ("flip_stale_running", "reconcile_parked", "reap", "release_sessions")

Key = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True)
class Page:
    """An answer, and how long it took."""

    status: int
    headers: Message
    body: str
    took_s: float


class Scrape:
    """The samples of one /metrics page."""

    def __init__(self, page: Page) -> None:
        assert page.status == 200
        self.text = page.body
        self.took_s = page.took_s
        self.samples: dict[Key, float] = {}
        for family in text_string_to_metric_families(page.body):
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self.samples, f"{key} is there twice"
                self.samples[key] = sample.value

    def value(self, name: str, **labels: str) -> float:
        """The one sample of this name with exactly these labels."""
        return self.samples[name, frozenset(labels.items())]

    def named(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        """Every sample of this name, by its labels."""
        return {labels: value for (n, labels), value in self.samples.items() if n == name}

    def by(self, name: str, label: str) -> dict[str, float]:
        """Every sample of a name that has one label, by the value of that label."""
        return {dict(labels)[label]: value for labels, value in self.named(name).items()}

    def counters(self) -> dict[Key, float]:
        """Every counter, and the histogram, which is one as well."""
        ends = ("_total", "_count", "_bucket", "_sum")
        return {key: value for key, value in self.samples.items() if key[0].endswith(ends)}


def process_of(url: str, policy: Policy, **environ: str) -> Process:
    """A worker's process on this database; its exporter takes any free port."""
    given = {"MAINT_DATABASE_URL": url, "MAINT_HTTP_ADDRESS": "127.0.0.1:0", **environ}
    return Process(load_settings(given), policy)


@contextmanager
def serving(process: Process) -> Iterator[Served]:
    """The process's pages while the block runs; nothing that was read before is known to it."""
    served = serve(process)
    try:
        yield served
    finally:
        served.close()
        process.close()


def get(served: Served, path: str, method: str = "GET") -> Page:
    return fetch(f"http://{served.address}{path}", method)


def fetch(url: str, method: str = "GET") -> Page:
    """What is served there, refusals as well."""
    request = urllib.request.Request(url, method=method)
    begun = time.monotonic()
    try:
        answer = urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        body = answer.read().decode()
        return Page(answer.status, answer.headers, body, time.monotonic() - begun)


def scrape(served: Served) -> Scrape:
    return Scrape(get(served, "/metrics"))


def scrape_until(
    served: Served, condition: Callable[[Scrape], bool], limit_s: float, what: str
) -> Scrape:
    """Scrape until the condition holds; fails after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while not condition(found := scrape(served)):
        assert time.monotonic() < deadline, f"not within {limit_s} s: {what}"
        time.sleep(0.05)
    return found


def full_scrape(served: Served) -> Scrape:
    """The metrics once every figure was read; what was done before serving is in all of them."""
    everything = {metric.name for metric in METRICS if metric.kind != "histogram"}

    def is_full(found: Scrape) -> bool:
        names = {name for name, _ in found.samples}
        return everything <= names and len(found.named("background_agents_overdue")) == 5

    return scrape_until(served, is_full, LONG_S, "every figure")


def by_hand(process: Process, job: str) -> None:
    """Run a job wherever it has something to do."""
    run = manual.by_hand(process, job, None, policy=process.policy, requested_by="test")
    assert run.state == "succeeded", run.error


def ask(url: str, query: str, **params: object) -> list[tuple[Any, ...]]:
    """The rows of a query, on a connection of the test's own."""
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(query.encode(), params or None).fetchall()


def number(url: str, query: str, **params: object) -> int:
    """The one number that a query gives."""
    [(found,)] = ask(url, query, **params)
    assert isinstance(found, int)
    return found


def now_ms(url: str) -> int:
    """The database's time."""
    return number(url, "select (extract(epoch from clock_timestamp()) * 1000)::bigint")


def load_sample(url: str, database: Database) -> None:
    """The sample ledger as of now, through the store."""
    ledger = sample_ledger(EXAMPLE_SEED, now_ms(url))
    checkpoints, sessions = PostgresCheckpointStore(database), PostgresSessionStore(database)
    agents = PostgresAgentStore(database)
    for line in ledger.checkpoints:
        key = {"scope": line["scope"], "token": line["token"], "status": line["status"]}
        checkpoints.put(
            Checkpoint(**key, expires_at=line["expiresAt"], updated_at=line["updatedAt"])
        )
    for line in ledger.sessions:
        sessions.put(Session(line["scope"], line["sessionId"], line["updatedAt"]))
    for line in ledger.agents:
        agents.put(AgentRecord.from_json(line))


def put_agent(database: Database, handle: str, scope: str = "a", **members: Any) -> None:
    """A row of which only the given members matter."""
    given: dict[str, Any] = {"rev": 1, "owner": "o", "session_scoped": False, "writer_id": "w"}
    given |= {"spawned_at": members["updated_at"], **members}
    PostgresAgentStore(database).put(AgentRecord(scope=scope, handle=handle, **given))
