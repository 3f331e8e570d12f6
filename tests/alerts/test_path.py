"""The way of an alert: processes, Prometheus with the shipped rules, Alertmanager, webhook."""

import json
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest

from store.database import Database
from store.migrate import create_ledger, migrate
from tests.alerts.rules import CHECKOUT, RULES, shortened
from tests.conftest import unavailable
from tests.e2e.deployment import valkey
from tests.e2e.processes import Child, environment, finished
from tests.ports import free_port
from tests.waiting import wait_until
from worker.embedded import embedded_postgres

pytestmark = pytest.mark.long

# Three periods of it are what an alert waits for; a machine that is busy must do with less.
EVERY_S = 5
POLICY = f"""
allow_short_retention = true
[schedule]
{
    "".join(
        f'{job} = "{EVERY_S}s"' + chr(10)
        for job in (
            "reap",
            "flip_stale_running",
            "reconcile_parked",
            "release_sessions",
            "drain_harvest",
            "housekeeping",
        )
    )
}
[guards]
breaker_rows = 2
[defaults]
max_age = "1m"
"""
PROMETHEUS = """
global:
  evaluation_interval: 1s
rule_files: [rules.yaml]
alerting:
  alertmanagers:
    - static_configs:
        - targets: ["127.0.0.1:{port}"]
"""
ALERTMANAGER = """
route:
  receiver: test
  group_by: ["..."]
  group_wait: 0s
  group_interval: 1s
receivers:
  - name: test
    webhook_configs:
      - url: http://127.0.0.1:{port}/
        send_resolved: true
"""


class Inbox:
    """The webhook: every alert that was sent to it, in order."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                inbox.alerts += json.loads(body)["alerts"]
                self.send_response(200)
                self.end_headers()

            def log_message(self, *said: object) -> None:
                pass

        self.port = free_port()
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def last(self, name: str, **labels: str) -> dict[str, Any] | None:
        """What was last said of an alert with at least these labels."""
        wanted = {"alertname": f"SemaMaintenance{name}", **labels}
        said = [a for a in self.alerts if wanted.items() <= a["labels"].items()]
        return said[-1] if said else None

    def told(self, name: str, **labels: str) -> dict[str, Any]:
        """Wait until it fires, and give what was sent."""
        self._wait("firing", name, labels)
        found = self.last(name, **labels)
        assert found is not None
        assert found["annotations"]["runbook_url"] == f"docs/runbooks/SemaMaintenance{name}.md"
        assert re.search(r"\d", found["annotations"]["description"])
        return found

    def over(self, name: str, **labels: str) -> None:
        """Wait until it is said to be over."""
        self._wait("resolved", name, labels)

    def quiet(self, name: str, **labels: str) -> bool:
        """Whether it does not fire at present, as far as was said."""
        found = self.last(name, **labels)
        return found is None or found["status"] == "resolved"

    def _wait(self, status: str, name: str, labels: dict[str, str]) -> None:
        wait_until(
            lambda: (found := self.last(name, **labels)) is not None and found["status"] == status,
            f"{name} {labels} {status}",
            within_s=90,
            every_s=0.2,
        )

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass
class Installation:
    """Everything that runs; `worker` and `beat` may be stopped and started again."""

    folder: Path
    inbox: Inbox
    stack: ExitStack
    database_folder: Path
    broker_url: str = ""
    url: str = ""
    running: dict[str, Child] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    database: ExitStack = field(default_factory=ExitStack)
    started: int = 0

    def start_database(self) -> None:
        options = {"fsync": "off"}
        self.url = self.database.enter_context(
            embedded_postgres(self.database_folder, create=True, options=options)
        )

    def environment(self, **settings: object) -> dict[str, str]:
        return environment(
            DATABASE_URL=self.url,
            BROKER_URL=self.broker_url,
            POLICY_FILE=self.folder / "policy.toml",
            CONNECT_TIMEOUT="1s",
            LOG_FORMAT="json",
            **settings,
        )

    def start(self, part: str) -> None:
        """Start the worker or the beat, at the address where it is scraped."""
        self.started += 1
        address = self.addresses.setdefault(part, f"127.0.0.1:{free_port()}")
        environ = self.environment(HTTP_ADDRESS=address)
        name = f"{part}-{self.started}"
        child = Child(name, self.folder, environ, "-m", "celery", "-A", "worker", part)
        self.running[part] = self.stack.enter_context(child)

    def stop(self, part: str) -> None:
        assert self.running.pop(part).signal_and_wait(signal.SIGTERM) == 0

    def do(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def jobs_done(self) -> bool:
        """Whether every job of the schedule has succeeded since the beginning."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            row = connection.execute(
                "select count(distinct job) from maintenance.runs"
                " where slot is not null and state = 'succeeded'"
            ).fetchone()
        return row == (6,)


def program(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        unavailable(f"no {name} here: install Debian's package {package}")
    return found


@contextmanager
def server(folder: Path, name: str, ready: str, *command: str) -> Iterator[None]:
    """A server of this machine, ready to be used; it is stopped after the block."""
    with (
        (folder / f"{name}.log").open("wb") as log,
        subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as process,
    ):
        try:
            wait_until(lambda: _answers(process, ready, folder / f"{name}.log"), f"{name} is ready")
            yield
        finally:
            process.kill()


def _answers(process: "subprocess.Popen[bytes]", url: str, log: Path) -> bool:
    assert process.poll() is None, log.read_text(encoding="utf-8")
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def scrape_config(addresses: list[str]) -> str:
    """The configuration that the README has, with these targets, asked every second."""
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^scrape_configs:\n(?:  .*\n)+", readme, re.MULTILINE)
    assert found is not None
    text = re.sub(r"targets: \[.*\]", f"targets: {json.dumps(addresses)}", found[0])
    return re.sub(r"scrape_interval: \S+", "scrape_interval: 1s", text)


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    prometheus = program("prometheus", "prometheus")
    alertmanager = program("prometheus-alertmanager", "prometheus-alertmanager")
    with ExitStack() as stack:
        # WHY not TMPDIR: when root runs the tests, the server's account must be able to get there.
        folders = [
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sema-test-", dir="/tmp")))
            for _ in range(2)
        ]
        folders[1].chmod(0o711)
        inbox = Inbox()
        stack.callback(inbox.close)
        there = Installation(folders[0], inbox, stack, folders[1])
        stack.callback(there.database.close)
        there.start_database()
        with Database(there.url) as database:
            create_ledger(database)
            migrate(database)
        there.broker_url = stack.enter_context(valkey())
        (there.folder / "policy.toml").write_text(POLICY, encoding="utf-8")
        there.start("worker")
        there.start("beat")
        wait_until(there.jobs_done, "every job's first run")

        ports = [free_port(), free_port()]
        rules = shortened(RULES.read_text(encoding="utf-8"), "2s")
        (there.folder / "rules.yaml").write_text(rules, encoding="utf-8")
        (there.folder / "alertmanager.yaml").write_text(
            ALERTMANAGER.format(port=inbox.port), encoding="utf-8"
        )
        (there.folder / "prometheus.yaml").write_text(
            PROMETHEUS.format(port=ports[1]) + scrape_config([*there.addresses.values()]),
            encoding="utf-8",
        )
        stack.enter_context(
            server(
                there.folder,
                "alertmanager",
                f"http://127.0.0.1:{ports[1]}/-/ready",
                alertmanager,
                "--config.file=alertmanager.yaml",
                "--storage.path=alertmanager",
                f"--web.listen-address=127.0.0.1:{ports[1]}",
                "--cluster.listen-address=",
            )
        )
        stack.enter_context(
            server(
                there.folder,
                "prometheus",
                f"http://127.0.0.1:{ports[0]}/-/ready",
                prometheus,
                "--config.file=prometheus.yaml",
                "--storage.tsdb.path=prometheus",
                f"--web.listen-address=127.0.0.1:{ports[0]}",
            )
        )
        query = f"http://127.0.0.1:{ports[0]}/api/v1/query?query="
        wait_until(
            lambda: _count(query, "count(maintenance_store_up==1)") == 2, "both were scraped"
        )
        yield there


def _count(query: str, expression: str) -> int:
    with urllib.request.urlopen(query + urllib.parse.quote(expression), timeout=10) as answer:
        [*found] = json.load(answer)["data"]["result"]
    return int(found[0]["value"][1]) if found else 0


def test_a_beat_that_stops_is_told_of_as_jobs_that_do_not_succeed(
    installation: Installation,
) -> None:
    inbox = installation.inbox
    assert inbox.quiet("JobNotSucceeding")

    installation.stop("beat")
    said = inbox.told("JobNotSucceeding", job="reap")

    assert said["labels"]["severity"] == "critical"
    assert "pod" not in said["labels"]
    assert "instance" not in said["labels"]
    assert said["annotations"]["description"].startswith("The last run of reap that did its work")
    installation.start("beat")
    inbox.over("JobNotSucceeding", job="reap")


def test_harvest_rejections_that_the_server_wrote_are_told_of(installation: Installation) -> None:
    assert installation.inbox.quiet("HarvestRejections")

    installation.do(
        "insert into maintenance.harvest_rejections (scope, session_id, code, detail, occurred_at)"
        " select 'tenant/acme', 's', 'restricted_divergence', '', 1 from generate_series(1, 3)"
    )
    said = installation.inbox.told("HarvestRejections", code="restricted_divergence")

    assert said["labels"]["severity"] == "warning"
    assert "tenant/acme" not in json.dumps(said)


def test_a_database_that_is_gone_is_told_of_and_so_is_its_coming_back(
    installation: Installation,
) -> None:
    assert installation.inbox.quiet("StoreUnreachable")

    installation.database.close()
    try:
        said = installation.inbox.told("StoreUnreachable")
    finally:
        installation.start_database()

    assert said["labels"] == {
        "alertname": "SemaMaintenanceStoreUnreachable",
        "severity": "critical",
    }, "one alert, though two processes said so"
    installation.inbox.over("StoreUnreachable")


def test_a_breaker_that_opens_is_told_of(installation: Installation) -> None:
    assert installation.inbox.quiet("BreakerOpen", job="reap")

    installation.do(
        "insert into public.background_agents (scope, handle, rev, status, owner, session_scoped,"
        " writer_id, spawned_at, updated_at, settled_at) select 's', 'a' || n, 1, 'completed',"
        " 'o', false, 'w', t.ms, t.ms, t.ms from generate_series(1, 5) n,"
        " (select (extract(epoch from now() - interval '2 minutes') * 1000)::bigint ms) t"
    )
    installation.inbox.told("BreakerOpen", job="reap")

    by_hand = ("reap", "--scope", "s", "--override", "breakers")
    environ = installation.environment()
    with finished(installation.folder, environ, "-m", "worker", *by_hand) as (code, child):
        assert code == 0, child.log
    installation.inbox.over("BreakerOpen", job="reap")


def test_what_an_operator_asked_for_in_vain_is_told_of(installation: Installation) -> None:
    assert installation.inbox.quiet("OperatorJobFailed")

    environ = installation.environment() | {"MEMORY_PERSISTENCE_CAPABLE": "perhaps"}
    with finished(installation.folder, environ, "-m", "worker", "audit-memory") as (code, _):
        assert code == 1

    said = installation.inbox.told("OperatorJobFailed", job="audit_memory")
    assert said["annotations"]["description"].startswith("1 run")


def test_processes_that_are_gone_are_told_of_as_metrics_that_are_absent(
    installation: Installation,
) -> None:
    inbox = installation.inbox
    assert inbox.quiet("MetricsAbsent")

    installation.stop("worker")
    installation.stop("beat")
    said = inbox.told("MetricsAbsent")

    assert said["labels"]["severity"] == "critical"
    installation.start("worker")
    installation.start("beat")
    inbox.over("MetricsAbsent")
