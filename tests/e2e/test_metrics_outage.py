"""The exporter while its database is down, frozen, silent or not prepared: it answers, and soon."""

import logging
import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from config.policy import Policy
from store.database import Database
from store.migrate import create_ledger, migrate
from tests import ledgers
from tests.conftest import Servers
from tests.e2e.scraping import (
    LONG_S,
    SAMPLE_POLICY,
    ask,
    by_hand,
    full_scrape,
    get,
    now_ms,
    process_of,
    put_agent,
    scrape,
    scrape_until,
    serving,
)
from worker.embedded import embedded_postgres

# A scrape waits two seconds for the database; Prometheus gives up after ten.
SOON_S = 4.0
OUTAGE_S = 9.0
OF_THE_MOMENT = {
    "background_agents",
    "background_agents_overdue",
    "background_agent_oldest_overdue_seconds",
    "background_agent_session_releases",
    "maintenance_clock_skew_seconds",
    "maintenance_xmin_horizon_age_seconds",
}


class Server:
    """A Postgres of the test's own, at the same address each time it is started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = ExitStack()

    def start(self) -> str:
        return self._running.enter_context(
            embedded_postgres(self._folder, create=True, options={"fsync": "off"})
        )

    def stop(self) -> None:
        self._running.close()


@pytest.fixture
def server() -> Iterator[Server]:
    # WHY not TMPDIR: when root runs the tests, the server's account must be able to get there.
    with tempfile.TemporaryDirectory(prefix="sema-test-", dir="/tmp") as name:
        Path(name).chmod(0o711)
        server = Server(Path(name))
        yield server
        server.stop()


@pytest.fixture
def url(server: Server) -> str:
    """A ledger on that server in which a reap has done something."""
    url = server.start()
    with Database(url) as database:
        create_ledger(database)
        migrate(database)
        put_agent(database, "t", status="killed", updated_at=1, settled_at=now_ms(url) - 3_600_000)
        put_agent(database, "r", status="running", updated_at=now_ms(url))
    with closing(process_of(url, SAMPLE_POLICY)) as process:
        by_hand(process, "reap")
    return url


def test_down_and_back_again(server: Server, url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Counters stay, what was of the moment goes; when the database is back, all of it is."""
    caplog.set_level(logging.INFO, "sema_maintenance.paced")
    with serving(process_of(url, SAMPLE_POLICY, MAINT_CONNECT_TIMEOUT="1s")) as served:
        before = full_scrape(served)
        assert before.value("background_agent_reaped_total", arm="max_age") == 1
        assert get(served, "/readyz").status == 200

        server.stop()
        ends = time.monotonic() + OUTAGE_S
        scrape_until(served, lambda s: s.value("maintenance_store_up") == 0, SOON_S, "down")
        while time.monotonic() < ends:
            found = scrape(served)
            assert found.took_s < SOON_S
            assert found.value("maintenance_store_up") == 0
            assert found.counters() == before.counters()
            assert not OF_THE_MOMENT & {name for name, _ in found.samples}
        assert get(served, "/healthz").status == 200
        unready = get(served, "/readyz")
        assert (unready.status, unready.body.count("\n")) == (503, 1)
        assert unready.body.startswith("not ready: the database does not answer: ")
        assert "refused" in unready.body or "No such file" in unready.body

        server.start()
        after = scrape_until(
            served, lambda s: s.value("maintenance_store_up") == 1, SOON_S, "the database is back"
        )
        assert after.counters() == before.counters()
        assert full_scrape(served).value("background_agents", status="running") == 1
        assert get(served, "/readyz").status == 200
    told = [(record.message, vars(record).get("figure")) for record in caplog.records]
    assert told.count(("figure_not_read", "pulse")) == 1
    assert told.count(("figure_read_again", "pulse")) == 1


def test_frozen_and_awake_again(server: Server, url: str) -> None:
    """A server that takes connections and never answers on any of them holds up no scrape."""
    with serving(process_of(url, SAMPLE_POLICY, MAINT_CONNECT_TIMEOUT="1s")) as served:
        before = full_scrape(served)
        pids = [
            int(str(pid))
            for (pid,) in ask(
                url,
                "select pid from pg_stat_activity"
                " where backend_type = 'client backend' and pid <> pg_backend_pid()"
                " union all select split_part(pg_read_file('postmaster.pid'), e'\\n', 1)::int",
            )
        ]
        assert len(pids) >= 2
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            scrape_until(served, lambda s: s.value("maintenance_store_up") == 0, SOON_S, "frozen")
            found = scrape(served)
            assert found.took_s < SOON_S
            assert found.counters() == before.counters()
            assert not OF_THE_MOMENT & {name for name, _ in found.samples}
            assert get(served, "/healthz").took_s < 1
            unready = get(served, "/readyz")
            assert unready.status == 503
            assert unready.took_s < SOON_S
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        scrape_until(served, lambda s: s.value("maintenance_store_up") == 1, LONG_S, "awake")


def test_a_database_that_was_never_there(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing listens, or it never says a word: no counter is shown, and no secret told."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        url = f"postgresql://maintainer:oyster-4711@127.0.0.1:{port}/agents"
        process = process_of(url, Policy.empty(), MAINT_CONNECT_TIMEOUT="1s")
        with serving(process) as served:
            found = scrape(served)
            assert found.took_s < SOON_S
            assert {name for name, _ in found.samples} == {
                "maintenance_store_up",
                "maintenance_build_info",
                "maintenance_job_interval_seconds",
                "maintenance_job_window_open",
            }
            assert found.value("maintenance_store_up") == 0
            unready = get(served, "/readyz")
            assert unready.status == 503
            assert unready.took_s < SOON_S
            assert get(served, "/healthz").body == "ok\n"
            assert "oyster" not in unready.body + found.text + caplog.text


def test_who_probes_is_answered_before_a_connection_gives_up() -> None:
    """Also where one may take far longer than whoever probes would wait."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/agents"
        with serving(process_of(url, Policy.empty(), MAINT_CONNECT_TIMEOUT="1h")) as served:
            unready = get(served, "/readyz")

    assert unready.body == "not ready: the database did not answer within 1.5s\n"


def test_a_database_that_was_not_prepared(servers: Servers) -> None:
    """Without the worker's tables it is not ready, and says which command makes them."""
    name = f"sema_test_bare_{os.getpid()}"
    with (
        ledgers.fresh_database(servers.url("18"), name) as url,
        serving(process_of(url, Policy.empty())) as served,
    ):
        assert scrape(served).value("maintenance_store_up") == 0
        unready = get(served, "/readyz")
        assert unready.status == 503
        assert "migrate" in unready.body

        with Database(url) as database:
            create_ledger(database)
            migrate(database)
        full = full_scrape(served)
        assert full.value("maintenance_store_up") == 1
        assert full.value("background_agent_reaped_total", arm="keep") == 0
        assert get(served, "/readyz").body == "ready\n"


def test_without_the_ledger_the_journal_is_still_shown(servers: Servers) -> None:
    """The server's table is gone: counters go on, its rows are not shown, and the store is not up.

    And once it is there again, so are they.
    """
    name = f"sema_test_bereft_{os.getpid()}"
    with ledgers.fresh_database(servers.url("18"), name) as url:
        with Database(url) as database:
            migrate(database)
        with serving(process_of(url, Policy.empty())) as served:
            found = scrape_until(
                served,
                lambda s: s.value("maintenance_store_up") == 0 and len(s.counters()) > 0,
                SOON_S,
                "the journal without the ledger",
            )
            assert found.value("background_agent_reaped_total", arm="keep") == 0
            assert not found.named("background_agents")

            with Database(url) as database:
                create_ledger(database)
            assert full_scrape(served).value("maintenance_store_up") == 1
