"""Workers and beats of one deployment, as nodes of pytest-celery over processes of this machine."""

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from celery import Celery
from pytest_celery import CeleryTestWorker, CeleryWorkerContainer

from tests.broker.brokers import Broker
from tests.broker.local import LocalProcess
from tests.e2e.deployment import READY, Deployment
from tests.e2e.processes import environment
from tests.waiting import wait_until

# How long Kubernetes waits by default for a pod that was asked to end.
GRACE_S = 30.0


class _WorkerContainer(CeleryWorkerContainer):
    @property
    def ready_prompt(self) -> str:
        return READY


class _BeatContainer(CeleryWorkerContainer):
    @property
    def ready_prompt(self) -> None:
        return None


class Node(CeleryTestWorker):
    """A worker or a beat."""

    @property
    def process(self) -> LocalProcess:
        found = self.container._container
        assert isinstance(found, LocalProcess)
        return found

    def lines(self, **members: object) -> list[dict[str, Any]]:
        """The JSON lines of its log that have these members; a line half written is left out."""
        lines = [json.loads(x) for x in self.logs().split("\n")[:-1] if x.startswith("{")]
        return [line for line in lines if members.items() <= line.items()]

    def complaints(self) -> list[dict[str, Any]]:
        """What it logged that a person should look at."""
        return [line for line in self.lines() if line["level"] not in {"debug", "info"}]

    def is_alive(self) -> bool:
        return self.process.status == "running"

    def ends(self, within_s: float = GRACE_S) -> int:
        """Ask it to end, as Kubernetes does; gives its exit code, which must come in time."""
        self.kill("SIGTERM")
        return self.process.wait(within_s)["StatusCode"]


class Deployed:
    """A ledger, a broker, and the nodes that a test starts on them; they end with the test."""

    def __init__(
        self, deployment: Deployment, broker: Broker, folder: Path, stack: ExitStack
    ) -> None:
        self.deployment = deployment
        self.broker = broker
        self._folder = folder
        self._stack = stack
        self._nodes: list[Node] = []
        self.app: Celery = deployment.producer()

    def worker(
        self, pool: str = "threads", *options: str, ready: bool = True, **settings: object
    ) -> Node:
        """Start a worker; it is at work when this comes back, unless it need not be."""
        settings = {"WORKER_POOL": pool, **settings}
        node = self._start("worker", _WorkerContainer, settings, *options)
        if not ready:
            return node
        wait_until(lambda: READY in node.logs() or not node.is_alive(), "a worker at work")
        assert node.ready(), node.logs()
        return node

    def beat(self, **settings: object) -> Node:
        """Start a beat."""
        return self._start("beat", _BeatContainer, settings)

    def _start(
        self,
        part: str,
        container: type[CeleryWorkerContainer],
        settings: dict[str, object],
        *options: str,
    ) -> Node:
        name = f"{part}-{self.deployment.broker_url.partition(':')[0]}-{len(self._nodes) + 1}"
        environ = environment(**{**self.deployment.settings, **settings})
        command = [sys.executable, "-m", "celery", "-A", "worker", part, *options]
        process = LocalProcess(name, command, environ, self._folder / f"{name}.log")
        self._stack.callback(process.remove)
        node = Node(container(process), self.app)
        self._nodes.append(node)
        return node

    def send(self, task: str, queue: str | None = None, **kwargs: object) -> None:
        """A message as anybody who can reach the broker would send it."""
        self.app.send_task(task, kwargs=kwargs, queue=queue)

    def rows_due(self, count: int, scopes: int = 1) -> None:
        """Rows that settled hours ago, each with a session."""
        self.deployment.do(
            "insert into public.background_agents (scope, handle, rev, status, owner,"
            " session_scoped, writer_id, session_id, spawned_at, updated_at, settled_at)"
            " select 's' || n %% %s, 'a' || n, 1, 'completed', 'o', false, 'w', 't' || n,"
            " t.ms, t.ms + n, t.ms + n from generate_series(1, %s) n,"
            " (select (extract(epoch from clock_timestamp() - interval '3 hours') * 1000)::bigint"
            "  as ms) t",
            scopes,
            count,
        )

    def left(self) -> int:
        return self.deployment.number("select count(*) from public.background_agents")

    def reaped(self) -> int:
        """How many rows the journal says were deleted."""
        return self.deployment.journal()["reap/max_age"]

    def runs(self, state: str = "succeeded") -> int:
        """How many ticks ended so."""
        return self.deployment.number(
            "select count(*) from maintenance.runs where slot is not null and state = %s", state
        )


def policy(folder: Path, *, every: str = "1s", jobs: tuple[str, ...] = ("reap",)) -> Path:
    """A policy that deletes what settled an hour ago, with these jobs at this period."""
    schedule = "".join(f'{job} = "{every}"\n' for job in jobs)
    file = folder / f"policy-{every}.toml"
    file.write_text(f'[schedule]\n{schedule}[defaults]\nmax_age = "1h"\n', encoding="utf-8")
    return file
