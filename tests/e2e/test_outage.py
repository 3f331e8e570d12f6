"""Postgres is away for longer than the stale age while writers live: none of their rows is lost.

Real writers renew their rows on a real server that is stopped and started again, under a real
worker and beat. When the server is back, every row looks as if its writer had been silent for too
long; the writers are heard before the worker believes it.
"""

import itertools
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from tests import ledgers
from tests.e2e.deployment import READY, Deployment, valkey
from tests.servers import postgres_15_bin
from tests.waiting import wait_until
from worker.embedded import embedded_postgres

STALE_S = 8.0
BEAT_S = 0.4
WRITERS = 4
ROWS_EACH = 5
DEAD = 3
POLICY = f"""
allow_short_retention = true
[schedule]
flip_stale_running = "1s"
reconcile_parked = "1s"
[guards]
heartbeat = "{BEAT_S}s"
breaker_hold = "1s"
[defaults]
stale_running_max_age = "{STALE_S:.0f}s"
"""
CLOCK = "(extract(epoch from clock_timestamp()) * 1000)::bigint"
ROW = (
    "insert into public.background_agents (scope, handle, rev, status, owner, session_scoped,"
    f" writer_id, spawned_at, updated_at) values (%s, %s, 1, 'running', 'o', false, %s, 1, {CLOCK})"
)
BEAT = (
    f"update public.background_agents set updated_at = {CLOCK}, rev = rev + 1"
    " where writer_id = %s and status = 'running'"
)
NUMBERS = itertools.count(1)


class Server:
    """A Postgres of the test's own, at the same address each time it is started."""

    def __init__(self, folder: Path, bin_dir: Path | None) -> None:
        self._folder = folder
        self._bin_dir = bin_dir
        self._running = ExitStack()

    def start(self) -> str:
        return self._running.enter_context(
            embedded_postgres(
                self._folder, create=True, bin_dir=self._bin_dir, options={"fsync": "off"}
            )
        )

    def stop(self) -> None:
        self._running.close()


class Writer(threading.Thread):
    """A live server: it renews its rows whenever its database answers, until told to stop."""

    def __init__(self, name: str, url: str, stop: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self._url = url
        self._stopping = stop
        self.beats = 0

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True, connect_timeout=2) as connection:
                    while not self._stopping.wait(BEAT_S):
                        connection.execute(BEAT.encode(), (self.name,))
                        self.beats += 1
            except psycopg.Error:
                self._stopping.wait(BEAT_S / 2)


@pytest.fixture(params=ledgers.VERSIONS, ids=lambda v: f"pg{v}")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    version = request.param
    bin_dir = postgres_15_bin() if version == "15" else None
    if version == "15" and bin_dir is None:
        pytest.skip("no Postgres 15 that can be stopped here: install Debian's postgresql-15")
    # WHY not TMPDIR: when root runs the tests, the server's account must be able to get there.
    with tempfile.TemporaryDirectory(prefix="sema-test-", dir="/tmp") as name:
        Path(name).chmod(0o711)
        server = Server(Path(name), bin_dir)
        yield server
        server.stop()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def deployment(server: Server, folder: Path, stack: ExitStack) -> Deployment:
    """A ledger of living and dead rows, with a worker and a beat."""
    url = server.start()
    database = ledgers.create(url, "plain")
    stack.callback(database.close)
    with psycopg.connect(url, autocommit=True) as connection:
        for writer, number in itertools.product(range(WRITERS), range(ROWS_EACH)):
            connection.execute(ROW.encode(), ("s", f"alive {writer} {number}", f"w{writer}"))
        for number in range(DEAD):
            connection.execute(ROW.encode(), ("s", f"dead {number}", "gone"))
    policy = folder / "policy.toml"
    policy.write_text(POLICY, encoding="utf-8")
    broker = stack.enter_context(valkey())
    settings: dict[str, object] = {
        "DATABASE_URL": url,
        "BROKER_URL": f"{broker}/0",
        "HTTP_ADDRESS": "127.0.0.1:0",
        "POLICY_FILE": policy,
        "CONNECT_TIMEOUT": "2s",
    }
    return Deployment(folder, url, broker, url, database, settings, stack)


def test_living_rows_survive_an_outage_that_is_longer_than_the_stale_age(
    server: Server, tmp_path: Path, stack: ExitStack
) -> None:
    """The dead ones are flipped, but only the whole stale age after the server is back."""
    deployed = deployment(server, tmp_path, stack)
    stop = threading.Event()
    stack.callback(stop.set)
    writers = [Writer(f"w{n}", deployed.url, stop) for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    deployed.worker().wait_for(READY)
    deployed.beat()
    ticks = "select count(*) from maintenance.runs where job = 'flip_stale_running'"
    wait_until(lambda: deployed.number(ticks) >= 2, "two ticks before the outage")
    wait_until(lambda: all(w.beats >= 2 for w in writers), "every writer to be heard")

    server.stop()
    threading.Event().wait(STALE_S * 1.5)
    heard = [writer.beats for writer in writers]
    assert server.start() == deployed.url

    wait_until(lambda: all(w.beats > n for w, n in zip(writers, heard, strict=True)), "all again")
    flipped = "select count(*) from public.background_agents where status = 'failed'"
    wait_until(lambda: deployed.number(flipped) >= DEAD, "the dead rows to be flipped")
    # More ticks, so that whoever would be flipped late is.
    more = deployed.number(ticks) + 3
    wait_until(lambda: deployed.number(ticks) >= more, "three more ticks")

    assert (
        deployed.number(
            "select count(*) from public.background_agents"
            " where handle like 'alive%' and status = 'running' and content = '{}'"
        )
        == WRITERS * ROWS_EACH
    )
    assert deployed.number(flipped) == DEAD
    waited = deployed.number(
        "select min(settled_at) - (extract(epoch from pg_postmaster_start_time()) * 1000)::bigint"
        " from public.background_agents where status = 'failed'"
    )
    assert waited >= STALE_S * 1000
    assert deployed.journal()["flip_stale_running/flipped"] == DEAD
    assert deployed.journal()["flip_stale_running/skipped/outage"] > 0
