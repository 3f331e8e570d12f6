"""The steps in the life of one cluster on disk: make it, start its server or find it, stop it."""

import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from worker.embedded.locks import FileLock
from worker.embedded.nameless import naming
from worker.embedded.root import INSTEAD, Account, EmbeddedUnavailable

_NAME = "sema"  # of the database and of its owner
_PORT = 5432  # only part of a file name: every server has a socket folder of its own
_MAKE_LIMIT_S = 120.0
_START_LIMIT_S = 30
_FAST_STOP_LIMIT_S = 60.0
_HARD_STOP_LIMIT_S = 10.0
_SIGNAL_AGAIN_S = 1.0
_ANSWER_LIMIT_S = 10.0
_POLL_S = 0.1
# Linux allows 107 bytes for the path of a socket, macOS 103.
_SOCKET_PATH_MAX = 103
# WHY only these: the path goes through a shell, a comma-separated setting and a URL.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./@+-]+")
_MODEST = {
    "shared_buffers": "64MB",
    "max_connections": "50",
    # Whoever forgets a transaction in it is not to keep dead rows there for ever.
    "idle_in_transaction_session_timeout": "10min",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster on disk and the steps of its life; every step needs start.lock to be held."""

    home: Path
    programs: Path
    account: Account
    options: Mapping[str, str]

    @property
    def data(self) -> Path:
        """The data directory, in Postgres' words; complete whenever it is there."""
        return self.home / "data"

    def exists(self) -> bool:
        """Whether the cluster has been made."""
        return (self.data / "PG_VERSION").exists()

    def make(self, starting: FileLock) -> None:
        """Make the cluster with its database. What was interrupted before is thrown away.

        WHY the rename: only a finished cluster ever bears the name `data`. WHY start.lock is
        inherited: if this process is killed, an initdb that goes on still keeps others out.
        """
        unfinished = self.home / "data.unfinished"
        if unfinished.exists():
            shutil.rmtree(unfinished)
        _private_folder(unfinished, self.account)
        unsafe = ["--no-sync"] if self.options.get("fsync") == "off" else []
        at = ["-D", unfinished.name]
        self._make_step(
            ["initdb", *at, "-U", _NAME, "-A", "trust", "-E", "UTF8", "--locale=C", *unsafe],
            starting,
        )
        self._make_step(
            ["postgres", "--single", *at, "-c", "exit_on_error=on", "postgres"],
            starting,
            stdin=f"CREATE DATABASE {_NAME}\n",
        )
        unfinished.rename(self.data)
        home = os.open(self.home, os.O_RDONLY)
        try:
            os.fsync(home)
        finally:
            os.close(home)

    def _make_step(self, command: list[str], starting: FileLock, stdin: str = "") -> None:
        named = naming(self.account, self.home)
        done = self._run(
            command, _MAKE_LIMIT_S, stdin=stdin, inherit=starting.fileno(), environ=named
        )
        if done.returncode != 0:
            reason = _reason(done.stderr) or f"{command[0]} ended with {done.returncode}"
            raise EmbeddedUnavailable(
                f"The embedded database in {self.home} could not be made ({reason}): "
                f"put that right and try again, or {INSTEAD}."
            )

    def url_once_running(self) -> str:
        """Use the server that lives, or start one. Waits up to 30 s for it to answer."""
        deadline = time.monotonic() + _START_LIMIT_S
        with FileLock(self.home / "server.lock") as server:
            while not server.acquire():
                if url := self._url_if_answering():
                    return url
                if time.monotonic() > deadline:
                    raise EmbeddedUnavailable(
                        f"The server of {self.home} runs but does not answer "
                        f"({_reason(self._log())}): stop it, or {INSTEAD}."
                    )
                time.sleep(_POLL_S)
            # WHY ask again: one that was started by hand answers, but does not hold the lock.
            return self._url_if_answering() or self._start(server)

    def _pid_file(self) -> list[str]:
        """What the server wrote of itself: pid, data folder, start time, port, socket folder."""
        with suppress(FileNotFoundError):
            return (self.data / "postmaster.pid").read_text("utf-8", "replace").splitlines()
        return []

    def _pid(self) -> int | None:
        lines = self._pid_file()
        return int(lines[0]) if lines and lines[0].isdecimal() else None

    def _url_if_answering(self) -> str | None:
        """The URL of this cluster's server if it takes connections, whoever started it."""
        lines = self._pid_file()
        if len(lines) < 5 or not lines[4]:
            return None
        port, socket_dir = lines[3], lines[4]
        target = ["-h", socket_dir, "-p", port, "-U", _NAME, "-d", _NAME]
        try:
            reply = self._run(["psql", "-XAtw", *target, "-c", "SHOW data_directory"])
        except subprocess.TimeoutExpired:
            return None
        # WHY: the file may be old, and its socket by now that of another cluster.
        if reply.returncode != 0 or Path(reply.stdout.strip()).resolve() != self.data:
            return None
        return f"postgresql://{_NAME}@/{_NAME}?host={quote(socket_dir)}&port={port}"

    def _start(self, server: FileLock) -> str:
        """Start the server, which inherits the lock, and return its URL.

        The caller holds server.lock: no other server lives.
        """
        # WHY: these two make Postgres refuse to start once a stranger has the dead server's pid.
        # Should one live against all odds, its shared memory still makes the new one refuse.
        socket_dir = self._socket_dir()
        _private_folder(socket_dir, self.account)
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        (socket_dir / f".s.PGSQL.{_PORT}.lock").unlink(missing_ok=True)
        self._begin_log()
        fixed = {
            "listen_addresses": "",
            "unix_socket_directories": str(socket_dir),
            "port": str(_PORT),
        }
        settings = {**_MODEST, **self.options, **fixed}
        arguments = shlex.join(f"--{name}={value}" for name, value in settings.items())
        # WHY pg_ctl: it gives the server a session of its own, out of reach of the terminal's
        # Ctrl-C, and waits until it is ready. WHY relative paths: it puts them through a shell.
        at, wait = ["-D", "data", "-l", "server.log"], ["-w", "-t", str(_START_LIMIT_S)]
        started = self._run(
            ["pg_ctl", "start", *at, *wait, "-o", arguments],
            _START_LIMIT_S + _ANSWER_LIMIT_S,
            inherit=server.fileno(),
        )
        if started.returncode == 0 and (url := self._url_if_answering()):
            return url
        reason = _reason(self._log()) or _reason(started.stderr)
        raise EmbeddedUnavailable(
            f"The embedded database in {self.home} did not start ({reason}): "
            f"see server.log there, or {INSTEAD}."
        )

    def stop(self) -> None:
        """Stop the server if one lives, the hard way if it takes too long: it recovers then.

        A server that somebody started by hand does not hold server.lock; it is left alone.
        """
        begun = time.monotonic()
        with FileLock(self.home / "server.lock") as server:
            if server.acquire():
                return
            # WHY again and again: a server that is only just starting has no pid file yet.
            while True:
                waited_s = time.monotonic() - begun
                if waited_s > _FAST_STOP_LIMIT_S + _HARD_STOP_LIMIT_S:
                    raise EmbeddedUnavailable(
                        f"The server of {self.home} does not stop: end process {self._pid()}."
                    )
                if pid := self._pid():
                    with suppress(ProcessLookupError):
                        fast = waited_s < _FAST_STOP_LIMIT_S
                        os.kill(pid, signal.SIGINT if fast else signal.SIGQUIT)
                if server.acquire(_SIGNAL_AGAIN_S):
                    break
        with suppress(OSError):
            self._socket_dir().rmdir()

    def _socket_dir(self) -> Path:
        """Where the socket is: beside the cluster, or in a short folder if that path will not do.

        WHY not TMPDIR: processes that have it set differently must meet in one place.
        """
        beside = self.home / "socket"
        path = str(beside / f".s.PGSQL.{_PORT}")
        if len(path) <= _SOCKET_PATH_MAX and _PLAIN_PATH.fullmatch(path):
            return beside
        digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:16]
        return Path("/tmp").resolve() / f"sema-{digest}"  # noqa: S108 - ownership is checked

    def _begin_log(self) -> None:
        """Begin a log for this start and keep the one before: it may tell of a crash."""
        log = self.home / "server.log"
        if log.exists():
            log.replace(self.home / "server.log.old")
        written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.fchown(written, self.account.uid, self.account.gid)
        finally:
            os.close(written)

    def _log(self) -> str:
        with suppress(FileNotFoundError):
            return (self.home / "server.log").read_text("utf-8", "replace")
        return ""

    def _run(
        self,
        command: list[str],
        timeout_s: float = _ANSWER_LIMIT_S,
        *,
        stdin: str = "",
        inherit: int | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        return self.account.run(
            [str(self.programs / command[0]), *command[1:]],
            cwd=self.home,
            timeout_s=timeout_s,
            stdin=stdin,
            inherit=[] if inherit is None else [inherit],
            environ=environ,
        )


def _private_folder(path: Path, account: Account) -> None:
    """Make sure that `path` is a real folder which only `account` can enter (and root)."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(folder).st_uid not in {account.uid, os.geteuid()}:
            raise EmbeddedUnavailable(f"{path} belongs to somebody else: remove it, or {INSTEAD}.")
        os.fchown(folder, account.uid, account.gid)
        os.fchmod(folder, 0o700)
    finally:
        os.close(folder)


def _reason(output: str) -> str:
    """The line that says why Postgres gave up, with its detail; the last line if none does."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for at in range(len(lines) - 1, -1, -1):
        if found := re.search(r"(?:FATAL|PANIC|error): +(.*)", lines[at]):
            after = lines[at + 1] if at + 1 < len(lines) else ""
            detail = re.search(r"DETAIL: +(.*)", after)
            return "; ".join(part[1].rstrip(".") for part in (found, detail) if part)
    return lines[-1] if lines else ""
