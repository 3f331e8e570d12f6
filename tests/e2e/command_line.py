"""The command line as a test uses it: in this process, or as a real process of its own."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from worker.cli.commands import sema_maintenance

CHECKOUT = Path(__file__).parents[2]
LIMIT_S = 60.0
# In every address that a test gives with a password.
SECRET = "s3cret-word"

# The flags of `reap` that delete every finished row, which nobody means by accident.
EVERY_FINISHED = ("--keep", "0", "--override", "floors")
# Acts on what nobody has seen before; and on a server that was just started.
UNSEEN = ("--override", "sightings")
AT_ONCE = (*UNSEEN, "--override", "outage")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def problems(self) -> list[str]:
        """What it complained of, a line each; anything like a traceback fails the test."""
        assert "Traceback" not in self.stderr + self.stdout
        prefix = "sema-maintenance: "
        return [
            line.removeprefix(prefix)
            for line in self.stderr.splitlines()
            if line.startswith(prefix)
        ]


class CommandLine:
    """Commands on one ledger. Nothing of the machine's own MAINT_ variables reaches them."""

    def __init__(self, url: str | None, **settings: str) -> None:
        self.url = url
        self.settings = settings | ({} if url is None else {"MAINT_DATABASE_URL": url})

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MAINT_")}
        return kept | self.settings | more

    def run(self, *arguments: str, stdin: bytes | str = b"", **settings: str) -> Ended:
        """Run a command in this process."""
        given = {name: None for name in os.environ if name.startswith("MAINT_")}
        with _own_logging():
            result = CliRunner().invoke(
                sema_maintenance,
                arguments,
                input=stdin,
                env={**given, **self.settings, **settings},
            )
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return Ended(result.exit_code, result.stdout, result.stderr)

    def json(self, *arguments: str, stdin: bytes | str = b"", **settings: str) -> Any:
        """What a command that succeeds prints with --json."""
        ended = self.run(*arguments, "--json", stdin=stdin, **settings)
        assert (ended.code, ended.problems) == (0, [])
        return json.loads(ended.stdout)

    def refusal(self, *arguments: str, stdin: bytes | str = b"", **settings: str) -> str:
        """The one line of a command that is refused: exit 2, and nothing on standard output."""
        ended = self.run(*arguments, stdin=stdin, **settings)
        assert ended.code == 2, ended
        assert ended.stdout == ""
        [problem] = ended.problems
        return problem

    def start(self, *arguments: str, **settings: str) -> subprocess.Popen[bytes]:
        """Begin a command as a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "worker", *arguments],
            cwd=CHECKOUT,
            env=self.environment(**settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def process(self, *arguments: str, **settings: str) -> Ended:
        """Run a command as a process of its own, to its end."""
        with self.start(*arguments, **settings) as process:
            return finished(process)


def finished(process: subprocess.Popen[bytes]) -> Ended:
    """Wait for a process and read what it said."""
    stdout, stderr = process.communicate(timeout=LIMIT_S)
    return Ended(process.returncode, stdout.decode(), stderr.decode())


@contextmanager
def _own_logging() -> Iterator[None]:
    """Give the process's log handlers back after a command has set its own."""
    root, ours = logging.getLogger(), logging.getLogger("sema_maintenance")
    handlers, level, our_level = root.handlers[:], root.level, ours.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        ours.setLevel(our_level)


def agent(**members: Any) -> dict[str, Any]:
    """An agent's record on the wire, running, with the members that have to be there."""
    return {
        "handle": "a1",
        "scope": "s",
        "owner": "session",
        "sessionScoped": True,
        "writerId": "host-a",
        "spawnedAt": 1_000,
        "updatedAt": 2_000,
        "status": "running",
        "rev": 1,
        **members,
    }


def lines(*objects: object) -> bytes:
    """The objects as JSON lines."""
    return b"".join(json.dumps(each, ensure_ascii=False).encode() + b"\n" for each in objects)
