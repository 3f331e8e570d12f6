"""A real Chromium without a screen, and pages in each state that it is shown."""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest
from playwright.sync_api import Browser, sync_playwright

from tests import ledgers
from tests.conftest import Servers, unavailable
from tests.e2e.scraping import (
    SAMPLE_POLICY,
    by_hand,
    full_scrape,
    load_sample,
    process_of,
    scrape_until,
    serving,
)
from tests.e2e.troubled import trouble
from tests.ports import free_port
from worker.context import Process
from worker.http import Served

ROW_JOBS = ("flip_stale_running", "reconcile_parked", "reap", "release_sessions")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The machine's Chromium. WHY not the library's own: it would have to be fetched."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        unavailable("there is no Chromium on this machine")
    with sync_playwright() as playwright:
        # WHY no sandbox: as root there is none to be had, and the page is our own.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(servers: Servers) -> Iterator[dict[str, Served]]:
    """The page of a worker that is well, of one where all is wrong, and of one that is cut off."""
    with ExitStack() as stack:

        def ledger(name: str) -> str:
            name = f"sema_test_page_{name}_{os.getpid()}"
            url = stack.enter_context(ledgers.fresh_database(servers.url("18"), name))
            stack.callback(ledgers.create(url, "plain").close)
            return url

        well = process_of(ledger("well"), SAMPLE_POLICY)
        cut_off = process_of(ledger("cut"), SAMPLE_POLICY)
        for process in (well, cut_off):
            tended(process)
        troubled = ledger("troubled")
        trouble(troubled)
        nowhere = f"postgresql://oyster:hunter2@127.0.0.1:{free_port()}/oyster"
        found = {
            "well": stack.enter_context(serving(well)),
            "troubled": stack.enter_context(serving(process_of(troubled, SAMPLE_POLICY))),
            "cut off": stack.enter_context(serving(cut_off)),
            "never there": stack.enter_context(serving(process_of(nowhere, SAMPLE_POLICY))),
        }
        for name in ("well", "troubled", "cut off"):
            full_scrape(found[name])
        close_off(troubled, f"sema_test_page_cut_{os.getpid()}")
        scrape_until(found["cut off"], lambda s: not s.value("maintenance_store_up"), 20, "cut off")
        yield found


def tended(process: Process) -> None:
    """A sample ledger on which every job has done its work, and nothing is left to look at."""
    url = url_of(process)
    load_sample(url, process.database)
    for job in ROW_JOBS:
        by_hand(process, job)
    with psycopg.connect(url, autocommit=True) as connection:
        # WHY: the sample has some that a person is to look at.
        connection.execute("delete from maintenance.session_releases")


def url_of(process: Process) -> str:
    assert process.settings.database_url is not None
    return process.settings.database_url.get_secret_value()


def close_off(url: str, name: str) -> None:
    """From now on nobody gets into the database of this name on the same server."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"alter database {name} allow_connections false".encode())
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,)
        )
