"""A process of this machine in the shape of a container, so that one suite drives both.

pytest-celery's nodes ask a container for its name, state, ports and log, and kill and restart it.
"""

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.e2e.processes import CHECKOUT
from tests.waiting import wait_until

# What stops a whole container stops every process that it forked.
_FOR_ALL = (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT)


class LocalProcess:
    """One process, in a session of its own, as docker's library would show a container."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environ: Mapping[str, str],
        log: Path,
        port: int | None = None,
        account: str | None = None,
    ) -> None:
        self.id = uuid4().hex
        self.name = name
        self._command = list(command)
        self._environ = dict(environ)
        self._log = log
        self._account: dict[str, Any] = {}
        if account is not None:
            self._account = {"user": account, "group": account, "extra_groups": []}
        ports = {} if port is None else {f"{port}/tcp": [{"HostPort": str(port)}]}
        self.attrs: dict[str, Any] = {
            "Config": {"Hostname": "127.0.0.1", "Env": [f"{k}={v}" for k, v in environ.items()]},
            "NetworkSettings": {"Networks": {}, "Ports": ports},
            "HostConfig": {"PortBindings": {}},
        }
        self.start()

    def start(self) -> None:
        """Start it, once more if it ended; its log goes on."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command,
                cwd=CHECKOUT if not self._account else "/",
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **self._account,
            )

    @property
    def status(self) -> str:
        return "running" if self.process.poll() is None else "exited"

    def reload(self) -> None:
        """Nothing is remembered that could be out of date."""

    def logs(self) -> bytes:
        return self._log.read_bytes()

    def kill(self, signal_: str | int | None = None, **named: str | int | None) -> None:
        """Send a signal, by default the one that nobody survives."""
        given = named.get("signal", signal_) or signal.SIGKILL
        number = signal.Signals[given] if isinstance(given, str) else signal.Signals(given)
        with suppress(ProcessLookupError):
            if number in _FOR_ALL:
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()

    def wait(self, timeout: float) -> dict[str, int]:
        """Its exit code, which must come in time."""
        return {"StatusCode": self.process.wait(timeout)}

    def stop(self, timeout: float) -> None:
        """Ask it to end; what has not ended in time is killed."""
        self.kill(signal.SIGTERM)
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()

    def restart(self, timeout: float) -> None:
        self.stop(timeout)
        self.start()

    def pause(self) -> None:
        """Nothing in it runs until `unpause`; its connections stay open."""
        self.kill(signal.SIGSTOP)

    def unpause(self) -> None:
        self.kill(signal.SIGCONT)

    def exec_run(self, command: str) -> tuple[int, bytes]:
        """Run something beside it; gives its exit code and output."""
        done = subprocess.run(
            shlex.split(command), env=self._environ, capture_output=True, check=False
        )
        return done.returncode, done.stdout

    def remove(self) -> None:
        """Kill it, whatever state it is in. Safe to repeat."""
        self.kill(signal.SIGCONT)
        self.kill()
        wait_until(lambda: self.status == "exited", f"{self.name} gone")
