"""What the tests of the embedded Postgres do to it: enter it elsewhere, write, look, wait."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

CHECKOUT = Path(__file__).parents[3]
FAST = {"fsync": "off"}
LIMIT_S = 60.0

SCRIPT = """
import os, signal, sys
from pathlib import Path
from worker.embedded import embedded_postgres
# A test run that was started in the background hands on that it ignores Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
with embedded_postgres(Path(sys.argv[1]), create=True, options={"fsync": "off"}) as url:
    print(url, flush=True)
    BODY
"""


class Holder:
    """Another process inside `embedded_postgres`, in a process group of its own."""

    def __init__(self, folder: Path, body: str = "sys.stdin.readline()") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT.replace("BODY", body), str(folder)],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def leave(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.process.wait(LIMIT_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        with self.process:
            self.process.kill()


def ask(url: str, query: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def remember(url: str, word: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS remembered (word text)")
        connection.execute("INSERT INTO remembered VALUES (%s)", [word])


def remembers(url: str, word: str) -> bool:
    return ask(url, f"SELECT count(*) FROM remembered WHERE word = '{word}'") == 1


def server_pid(folder: Path) -> int:
    return int((folder / "data" / "postmaster.pid").read_text().splitlines()[0])


def assert_stopped(folder: Path, url: str) -> None:
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    assert not (folder / "data" / "postmaster.pid").exists(), "the server did not end in order"


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.002)


def socket_folder(url: str) -> Path:
    return Path(str(psycopg.conninfo.conninfo_to_dict(url)["host"]))
