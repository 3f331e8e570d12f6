"""Real processes under test: started clean, read line by line, and stopped by their own id."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from tests.waiting import wait_until

CHECKOUT = Path(__file__).parents[2]
# Python passes a signal that it was started without on to whatever it starts, and so does a shell
# with `&`: a child of such a test run would never hear of Ctrl-C.
_HEARS_CTRL_C = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


def environment(**settings: object) -> dict[str, str]:
    """This process's environment without its settings, and with these: `DATA_DIR`, not MAINT_…."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("MAINT_", "PG"))}
    given = {f"MAINT_{name}": str(value) for name, value in settings.items()}
    # WHY: whatever was said before a kill must be in the file.
    return inherited | {"PYTHONUNBUFFERED": "1"} | given


class Child:
    """One process in a session of its own; `log` is its standard error, `out` its output."""

    def __init__(
        self,
        name: str,
        folder: Path,
        environ: Mapping[str, str],
        *args: str,
        checkout: Path = CHECKOUT,
    ) -> None:
        self.name = name
        self._files = [folder / f"{name}.out", folder / f"{name}.log"]
        with self._files[0].open("wb") as out, self._files[1].open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _HEARS_CTRL_C, sys.executable, *args],
                cwd=checkout,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,
            )

    @property
    def out(self) -> str:
        """What it has written to standard output so far."""
        return self._files[0].read_text(encoding="utf-8")

    @property
    def log(self) -> str:
        """What it has written to standard error so far."""
        return self._files[1].read_text(encoding="utf-8")

    def lines(self, **members: object) -> list[dict[str, Any]]:
        """The JSON lines of its log that have these members; a line half written is left out."""
        found = []
        for line in self.log.split("\n")[:-1]:
            if line.startswith("{"):
                said = json.loads(line)
                if members.items() <= said.items():
                    found.append(said)
        return found

    def wait_for(self, text: str, within_s: float = 60.0) -> None:
        """Come back once it said this in either stream; fail if it ends without having done so."""

        def said() -> bool:
            ended = self.process.poll() is not None
            heard = text in self.out or text in self.log
            assert heard or not ended, f"{self.name} ended with {self.process.poll()}:\n{self.log}"
            return heard

        wait_until(said, f"{self.name} says {text!r}", within_s)

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def ends(self, within_s: float = 60.0) -> int:
        """Its exit code, which must come in time."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end:\n{self.log}") from None

    def signal_and_wait(self, number: signal.Signals, within_s: float = 60.0) -> int:
        """Send a signal to the process alone; gives its exit code."""
        self.process.send_signal(number)
        return self.ends(within_s)

    def close(self) -> None:
        """Kill it, with what it forked, if it still lives. Safe to repeat."""
        if self.process.returncode is None:
            # WHY the group: it is the child's own, and a worker's forks would outlive it.
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def finished(
    folder: Path, environ: Mapping[str, str], *args: str, within_s: float = 60.0
) -> Iterator[tuple[int, Child]]:
    """Run a process to its end; gives its exit code and what it said."""
    with Child("once", folder, environ, *args) as child:
        yield child.ends(within_s), child
