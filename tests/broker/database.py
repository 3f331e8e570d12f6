"""A Postgres that a test may stop, and a pgbouncer before it, both on TCP ports of their own."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.broker.local import LocalProcess
from tests.ports import free_port
from tests.servers import postgres_15_bin
from tests.waiting import wait_until

# Neither program runs as root; Debian's package makes this account.
ACCOUNT = "postgres" if os.geteuid() == 0 else None
_PLACE = "/tmp"


@dataclass
class Server:
    """A server at 127.0.0.1, and its process."""

    process: LocalProcess
    port: int

    def url(self, database: str = "postgres", port: int | None = None) -> str:
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/{database}"

    def answers(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def start(self) -> None:
        """Start it again, and wait until it answers."""
        self.process.start()
        wait_until(self.answers, f"{self.process.name} again")


@contextmanager
def _own_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sema-test-", dir=_PLACE) as name:
        folder = Path(name)
        if ACCOUNT is not None:
            shutil.chown(folder, ACCOUNT, ACCOUNT)
        yield folder


@contextmanager
def postgres() -> Iterator[Server]:
    """A new cluster of the oldest Postgres that is supported."""
    programs = postgres_15_bin()
    assert programs is not None, "ask why_unavailable first"
    with _own_folder() as folder:
        port = free_port()
        subprocess.run(
            [programs / "initdb", "-D", "data", "-U", "postgres", "-A", "trust", "--no-sync"],
            cwd=folder,
            check=True,
            capture_output=True,
            user=ACCOUNT,
            group=ACCOUNT,
        )
        command = [str(programs / "postgres"), "-D", str(folder / "data"), "-p", str(port)]
        for setting in ("fsync=off", "unix_socket_directories=", "listen_addresses=127.0.0.1"):
            command += ["-c", setting]
        process = LocalProcess(
            "postgres", command, os.environ, folder / "log", port, account=ACCOUNT
        )
        try:
            server = Server(process, port)
            wait_until(server.answers, "Postgres")
            yield server
        finally:
            process.stop(10)
            process.remove()


def pgbouncer_program() -> str | None:
    return shutil.which("pgbouncer", path=f"{os.defpath}:/usr/sbin")


@contextmanager
def pgbouncer(server: Server, pool_size: int) -> Iterator[Server]:
    """A pooler in transaction mode with so many connections to the server for each database."""
    program = pgbouncer_program()
    assert program is not None, "ask pgbouncer_program first"
    with _own_folder() as folder:
        port = free_port()
        (folder / "users").write_text('"postgres" ""\n')
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = host=127.0.0.1 port={server.port}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {folder}/users\n"
            f"pool_mode = transaction\ndefault_pool_size = {pool_size}\nserver_lifetime = 3\n"
        )
        process = LocalProcess(
            "pgbouncer",
            [program, str(folder / "pgbouncer.ini")],
            os.environ,
            folder / "log",
            port,
            account=ACCOUNT,
        )
        try:
            pooler = Server(process, port)
            wait_until(pooler.answers, "pgbouncer")
            yield pooler
        finally:
            process.remove()
