"""Processes whose probes a test asks, and which it can hold up."""

import signal
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from config.policy import SCHEDULED_JOBS
from tests.e2e.deployment import Deployment
from tests.e2e.held_up import LIMIT
from tests.e2e.processes import Child, environment
from tests.ports import free_port
from tests.waiting import wait_until

SOON_S: Final = 15.0
# Longer than a loop may stand still.
LONGER_S: Final = LIMIT.total_seconds() + 4
PROCESSES: Final = {
    "worker": ("worker",),
    "prefork": ("worker", "--pool=prefork"),
    "worker -B": ("worker", "-B"),
    "beat": ("beat",),
    "run": ("run",),
}


class Probed:
    """A process that a test can hold up, and what its probes say."""

    def __init__(self, deployment: Deployment, kind: str, **settings: object) -> None:
        self.kind = kind
        self._folder = deployment.folder / f"held-{kind.replace(' ', '')}"
        self._folder.mkdir()
        self.address = f"127.0.0.1:{free_port()}"
        environ = environment(
            **{
                **deployment.settings,
                "HTTP_ADDRESS": self.address,
                "LOG_FORMAT": "json",
                "CONNECT_TIMEOUT": "1s",
                **settings,
            }
        )
        arguments = ("-m", "tests.e2e.held_up", str(self._folder), *PROCESSES[kind])
        self.child = deployment.stack.enter_context(
            Child(f"probed-{kind.replace(' ', '')}", deployment.folder, environ, *arguments)
        )

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a page; 0 while nothing is served."""
        assert self.child.is_alive(), self.child.log
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except urllib.error.URLError:
            return 0, ""

    def says(self, path: str, status: int, *words: str, within_s: float = 60.0) -> None:
        """Come back once the page has this status, and its one line these words."""
        last: list[tuple[int, str]] = []

        def does() -> bool:
            last[:] = [self.get(path)]
            found, text = last[0]
            return found == status and all(word in text for word in words)

        try:
            wait_until(does, f"{self.kind}: {path} with {status} {words}", within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; it says {last[0]}:\n{self.child.log}") from None
        assert last[0][1].count("\n") == 1

    def is_well(self) -> None:
        """Come back once it is alive and ready."""
        self.says("/readyz", 200)
        assert self.get("/healthz") == (200, "ok\n")

    def hold(self, thread: str) -> Path:
        """Hold this thread up until the file that this gives is removed."""
        file = self._folder / thread
        file.touch()
        if thread == "main":
            self.child.process.send_signal(signal.SIGUSR2)
        return file

    def ends(self) -> None:
        """It ends in order when it is told to."""
        assert self.child.signal_and_wait(signal.SIGTERM, SOON_S) == 0


def stay_alive(*probed: Probed, for_s: float = LONGER_S) -> None:
    """Fail as soon as one of them does not say that it lives."""
    ends = time.monotonic() + for_s
    while time.monotonic() < ends:
        for each in probed:
            assert each.get("/healthz") == (200, "ok\n"), each.kind
        time.sleep(0.2)


def policy(folder: Path, period: str) -> Path:
    """A policy with this period for each job, which does nothing else."""
    file = folder / f"{period}.toml"
    jobs = "\n".join(f'{job} = "{period}"' for job in SCHEDULED_JOBS)
    file.write_text(f"[schedule]\n{jobs}\n", encoding="utf-8")
    return file
