"""Two releases on one database and one broker: the one before this, and the one after it.

The one before is taken from the history of this checkout; the one after is a schema that is one
migration ahead.
"""

import io
import itertools
import re
import subprocess
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.migrate import shipped
from tests.conftest import Servers
from tests.e2e.command_line import CommandLine
from tests.e2e.deployment import READY, Deploy, Deployment, deployments, valkey
from tests.e2e.processes import CHECKOUT, Child, environment
from tests.waiting import wait_until

# Release 0.1.0.
BEFORE = "dca0d2d"
NUMBERS = itertools.count(1500)
SCOPES = 30
TICKS = 6
SCHEDULE = """
[schedule]
reap = "1s"
flip_stale_running = "1s"
reconcile_parked = "1s"
release_sessions = "1s"
[defaults]
max_age = "1h"
stale_running_max_age = "15m"
stale_claim_max_age = "15m"
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with valkey() as url:
        yield url


@pytest.fixture
def deploy(servers: Servers, broker: str, tmp_path: Path) -> Iterator[Deploy]:
    with deployments(tmp_path, servers.url("18"), broker, NUMBERS) as deploy:
        yield deploy


@pytest.fixture(scope="module")
def release_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the release before this one."""
    archived = subprocess.run(
        ["git", "archive", BEFORE], cwd=CHECKOUT, capture_output=True, check=False
    )
    if archived.returncode != 0:
        pytest.skip(f"commit {BEFORE} is not in the history here; fetch it in full")
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def policy_file(folder: Path) -> Path:
    file = folder / "policy.toml"
    file.write_text(SCHEDULE, encoding="utf-8")
    return file


def finished_rows(deployment: Deployment, prefix: str) -> int:
    """Rows of many scopes that settled two days ago, each with a transcript; gives their number."""
    [row] = deployment.rows(
        "with rows as (insert into public.background_agents (scope, handle, rev, status, owner,"
        " session_scoped, writer_id, session_id, spawned_at, updated_at, settled_at)"
        " select 's' || s, %s || n, 1, 'completed', 'o', false, 'w', %s || n, 1, at.ms, at.ms"
        " from generate_series(1, %s) s, generate_series(1, 10) n, lateral (select"
        "   (extract(epoch from now()) * 1000)::bigint - 172800000 + n * 1000 as ms) at"
        " returning 1) select count(*) as n from rows",
        prefix,
        prefix,
        SCOPES,
    )
    return int(row["n"])


def trouble(children: list[Child]) -> list[str]:
    """What any of them logged that is more than a warning."""
    return [
        f"{child.name}: {line}"
        for child in children
        for line in child.lines()
        if line["level"] not in {"info", "warning"}
    ]


def metrics(worker: Child) -> str:
    """The page of a worker's metrics."""
    worker.wait_for('"http_served"')
    [said] = worker.lines(event="http_served")
    with urllib.request.urlopen(f"http://{said['address']}/metrics", timeout=20) as answer:
        page: bytes = answer.read()
    return page.decode()


def value(page: str, series: str) -> float:
    found = re.search(rf"^{re.escape(series)} (\S+)$", page, re.MULTILINE)
    assert found is not None, f"no {series}"
    return float(found[1])


def assert_each_tick_was_done_once(deployment: Deployment) -> None:
    assert (
        deployment.rows(
            "select job, slot, count(*) from maintenance.runs where slot is not null"
            " group by 1, 2 having count(*) > 1"
        )
        == []
    )
    assert (
        deployment.rows(
            # WHY not lost parts: at a period of a second a message may expire before it is read.
            "select * from maintenance.runs where state not in ('running', 'succeeded')"
            " and error not like '% never came back'"
        )
        == []
    )


def test_release_before_and_this_one_share_the_work(
    deploy: Deploy, release_before: Path, tmp_path: Path
) -> None:
    """A worker and a beat of each: every tick is done once, every row is counted once."""
    deployment = deploy(POLICY_FILE=policy_file(tmp_path))
    placed = finished_rows(deployment, "a")
    environ = environment(**deployment.settings)
    old = []
    for part in ("worker", "beat"):
        child = Child(
            f"old-{part}",
            tmp_path,
            environ,
            *("-m", "celery", "-A", "worker", part),
            checkout=release_before,
        )
        old.append(deployment.stack.enter_context(child))
    old[0].wait_for(READY)
    new = [deployment.worker(), deployment.beat()]
    new[0].wait_for(READY)

    # Whoever cuts a run leaves its mark: only this release says when a part was queued.
    cut_by_old = "select count(*) from maintenance.run_parts where part > 0 and queued_at is null"
    cut_by_new = "select count(*) from maintenance.run_parts where part > 0 and queued_at > 0"
    for number in range(60):
        placed += finished_rows(deployment, f"b{number}-")
        wait_until(
            lambda: deployment.number("select count(*) from public.background_agents") == 0,
            "every row gone",
        )
        if min(deployment.number(cut_by_old), deployment.number(cut_by_new)) >= TICKS:
            break
    request = CommandLine(deployment.url, MAINT_BROKER_URL=deployment.broker_url).json(
        "release-sessions", "--all-scopes", "--yes", "--enqueue"
    )

    def is_done() -> bool:
        [entry] = CommandLine(deployment.url).json("history", "--request", request["request_id"])
        return bool(entry["state"] == "succeeded")

    wait_until(is_done, "what an operator asked for", every_s=0.2)
    assert min(deployment.number(cut_by_old), deployment.number(cut_by_new)) >= TICKS
    assert deployment.journal()["reap/max_age"] == placed
    assert_each_tick_was_done_once(deployment)
    assert deployment.number("select count(*) from maintenance.session_releases") == placed
    # What only this release writes: an outcome and an arm that the one before does not know.
    deployment.do(
        "insert into maintenance.journal (run_id, batch, at, job, arm, cause, count) values"
        " (gen_random_uuid(), 0, 0, 'reap', 'run', 'partial', 1),"
        " (gen_random_uuid(), 0, 0, 'housekeeping', 'took', '5', 1)"
    )
    for worker in (old[0], new[0]):
        page = metrics(worker)
        assert value(page, "maintenance_store_up") == 1
        assert value(page, 'background_agent_reaped_total{arm="max_age"}') == placed
    assert trouble([*old, *new]) == []


def test_database_that_a_newer_release_has_migrated(deploy: Deploy, tmp_path: Path) -> None:
    """A table, an index, and a column in every table of the worker's: nothing minds them."""
    deployment = deploy(POLICY_FILE=policy_file(tmp_path))
    ahead = shipped()[-1].version + 1
    tables = deployment.rows(
        "select tablename from pg_tables where schemaname = 'maintenance'"
        " and tablename <> 'schema_migrations'"
    )
    for row in tables:
        deployment.do(f"alter table maintenance.{row['tablename']} add column made_up text")
    deployment.do("create table maintenance.made_up (id bigint primary key)")
    deployment.do("create index made_up_runs on maintenance.runs (made_up)")
    deployment.do(
        "insert into maintenance.schema_migrations (version, name, checksum)"
        " values (%s, 'made_up', 'x')",
        ahead,
    )
    placed = finished_rows(deployment, "a")
    cli = CommandLine(deployment.url, MAINT_BROKER_URL=deployment.broker_url)

    assert cli.json("migrate") == {"migrations": [], "newer": ahead}
    assert f"ahead of this release, at {ahead:04}" in cli.run("migrate").stdout
    by_hand = cli.json("reap", "--scope", "s1", "--max-age", "1h")
    children = [deployment.worker(), deployment.beat()]
    children[0].wait_for(READY)
    request = cli.json("reap", "--scope", "s2", "--keep", "1", "--enqueue")

    def are_done() -> bool:
        return {"reap", "flip_stale_running", "reconcile_parked", "release_sessions"} <= {
            row["job"]
            for row in deployment.rows(
                "select job from maintenance.runs where slot is not null and state = 'succeeded'"
            )
        }

    wait_until(are_done, "every job")
    wait_until(
        lambda: deployment.number("select count(*) from public.background_agents") == 0,
        "every row gone",
    )
    [entry] = cli.json("history", "--request", request["request_id"])
    assert entry["request"]["state"] == "taken"
    assert by_hand["report"]["max_age"] == 10
    assert cli.run("status").code == 0
    journal = deployment.journal()
    assert journal["reap/max_age"] + journal["reap/keep"] == placed
    assert_each_tick_was_done_once(deployment)
    page = metrics(children[0])
    assert value(page, "maintenance_store_up") == 1
    assert trouble(children) == []
