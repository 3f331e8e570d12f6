"""The page that a real worker serves: what it tells, what it never tells, and when it answers."""

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.conftest import Servers
from tests.e2e.deployment import READY, Deploy, Deployment, deployments, load_sample, valkey
from tests.e2e.processes import Child
from tests.e2e.scraping import Page, fetch
from tests.e2e.troubled import SECRETS, trouble
from tests.waiting import wait_until

NUMBERS = itertools.count(1)
# The page waits two seconds for the database, as a scrape does.
SOON_S = 4.0


@pytest.fixture
def deploy(servers: Servers, tmp_path: Path) -> Iterator[Deploy]:
    with (
        valkey() as broker,
        deployments(tmp_path, servers.url("18"), broker, NUMBERS) as deploy,
    ):
        yield deploy


def started(deployment: Deployment) -> Child:
    """A worker that is at work; no beat ticks, so that nothing changes by itself."""
    worker = deployment.worker(LOG_FORMAT="json", CONNECT_TIMEOUT="1s")
    worker.wait_for(READY)
    worker.wait_for('"http_served"')
    return worker


def page_of(worker: Child) -> Page:
    found = re.search(r'"http_served", "address": "([^"]+)"', worker.log)
    assert found is not None, worker.log
    page = fetch(f"http://{found[1]}/")
    assert page.status == 200
    assert page.took_s < SOON_S
    return page


def words(page: Page) -> str:
    """What is to be read, without the style and the markup."""
    body = re.sub(r"<style>.*?</style>", "", page.body, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body)).replace("&#x27;", "'")


def page_until(worker: Child, condition: Callable[[str], bool], what: str) -> str:
    """What it says once the condition holds."""
    last: list[str] = []

    def does() -> bool:
        last[:] = [words(page_of(worker))]
        return condition(last[0])

    wait_until(does, what)
    return last[0]


def test_page_is_whole_strict_and_never_kept(deploy: Deploy) -> None:
    page = page_of(started(deploy()))

    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.headers["Cache-Control"] == "no-store"
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert page.headers["Referrer-Policy"] == "no-referrer"
    policy = page.headers["Content-Security-Policy"]
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-[\w+/=]+'; "
        r"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        policy,
    )
    assert int(page.headers["Content-Length"]) == len(page.body.encode())
    assert page.body.startswith('<!doctype html>\n<html lang="en">')
    assert page.body.endswith("</html>")


def test_everything_that_is_wrong_is_told_and_nothing_else(deploy: Deploy) -> None:
    """Numbers and commands, but no scope, no row, no session, no person and no text of an error."""
    deployment = deploy()
    worker = started(deployment)
    trouble(deployment.url)

    said = page_until(worker, lambda text: "12 transcripts" in text, "the trouble")
    for sentence in (
        "The last run of reap failed",
        "release_sessions has missed its ticks",
        "12 transcripts could not be released and will not be tried again",
        "1 transcript set aside as suspect",
        "reconcile_parked fails in 2 scopes",
        "A guard holds flip_stale_running everywhere",
        "A breaker holds reap in 3 scopes",
        "reap is paused everywhere",
        "drain_harvest is paused in 1 scope",
        "Agents cannot write memory",
        "2 holds in force",
        "max_age 1,204",
    ):
        assert sentence in said
    body = page_of(worker).body
    for secret in SECRETS:
        assert secret not in body
    assert deployment.number("select count(*) from maintenance.holds") == 3


def test_each_job_and_each_count_is_there(deploy: Deploy) -> None:
    deployment = deploy()
    load_sample(deployment.url, deployment.database)
    worker = started(deployment)

    said = page_until(worker, lambda text: "not known" not in text, "every figure")
    for job in ("reap", "flip_stale_running", "reconcile_parked", "release_sessions",
                "drain_harvest", "housekeeping", "audit_memory"):  # fmt: skip
        assert f" {job} " in said
    assert "version 0.2.0" in said
    for status in ("running", "parked", "completed", "failed", "killed"):
        counted = deployment.number(
            "select count(*) from public.background_agents where status = %s", status
        )
        assert f" {status} {counted} " in said
    for scope in {row["scope"] for row in deployment.rows("select scope from background_agents")}:
        assert scope not in said


def test_page_answers_without_its_database_and_says_what_it_last_knew(deploy: Deploy) -> None:
    """At once, each time; and all of it is there again when the database is."""
    deployment = deploy()
    trouble(deployment.url)
    worker = started(deployment)
    page_until(worker, lambda text: "not known" not in text, "every figure")

    let_in(deployment, allowed=False)
    said = page_until(worker, lambda text: "cannot be used" in text, "the outage")
    assert "The database has been out of use since 20" in said
    assert "It last answered at" in said
    assert "As last read at" in said
    # What was known stays, marked as old, and so do the warnings from it.
    assert "12 transcripts could not be released" in said
    assert "keep 7, max_age 1,204" in said
    for _ in range(3):
        assert "cannot be used" in words(page_of(worker))

    let_in(deployment, allowed=True)
    back = page_until(worker, lambda text: "cannot be used" not in text, "the database is back")
    assert "The database answers" in back
    assert "As last read at" not in back


def let_in(deployment: Deployment, *, allowed: bool) -> None:
    """Whether anybody may connect; who is connected is thrown out if not."""
    name = str(conninfo_to_dict(deployment.url)["dbname"])
    with psycopg.connect(deployment.server_url, autocommit=True) as connection:
        connection.execute(f'alter database "{name}" allow_connections {allowed}'.encode())
        if not allowed:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s",
                (name,),
            )
