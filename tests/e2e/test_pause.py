"""A pause stops real workers of either pool within a batch, and a resume lets them go on."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Servers
from tests.e2e.command_line import CommandLine
from tests.e2e.deployment import READY, Deploy, Deployment, deployments, valkey
from tests.waiting import wait_until

NUMBERS = itertools.count(1)
SCOPES = 6
EACH = 1500
# WHY so few: there must be some left to pause, and a slow machine must come to the end of them.
ROWS_PER_SECOND = 1000
POLICY = """
[schedule]
reap = "2s"
[defaults]
max_age = "1h"
"""
FILL = (
    "insert into public.background_agents (scope, handle, rev, status, owner, session_scoped,"
    " writer_id, spawned_at, updated_at, settled_at)"
    " select 's' || n %% %s, 'h' || n, 1, 'completed', 'o', false, 'w', 1, 1500000000000,"
    " 1500000000000 from generate_series(1, %s) n"
)
LEFT = "select count(*) from public.background_agents"


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with valkey() as url:
        yield url


@pytest.fixture
def deploy(servers: Servers, broker: str, tmp_path: Path) -> Iterator[Deploy]:
    with deployments(tmp_path, servers.url("18"), broker, NUMBERS) as deploy:
        yield deploy


def left(deployment: Deployment, where: str = "true") -> int:
    return deployment.number(f"{LEFT} where {where}")


def ticks(deployment: Deployment) -> int:
    return deployment.number("select count(*) from maintenance.runs where state <> 'running'")


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_pause_holds_from_the_word_on(deploy: Deploy, tmp_path: Path, pool: str) -> None:
    """What is left when the command says so is left, tick after tick, until it is resumed."""
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY, encoding="utf-8")
    deployment = deploy(
        POLICY_FILE=policy,
        ROWS_PER_BATCH=5,
        SCOPES_PER_PART=2,
        SCOPES_PER_BATCH=2,
        MAX_ROWS_PER_SECOND=ROWS_PER_SECOND,
    )
    total = SCOPES * EACH
    deployment.do(FILL, SCOPES, total)
    cli = CommandLine(deployment.url)
    worker = deployment.worker(pool)
    deployment.beat()
    worker.wait_for(READY)

    wait_until(lambda: left(deployment) < total, "rows going")
    cli.json("pause", "reap", "--scope", "s1")
    in_scope = left(deployment, "scope = 's1'")
    assert in_scope > 0
    elsewhere = left(deployment, "scope <> 's1'")
    wait_until(lambda: left(deployment, "scope <> 's1'") < elsewhere, "other scopes going on")
    assert left(deployment, "scope = 's1'") == in_scope

    cli.json("pause", "reap")
    then, ticked = left(deployment), ticks(deployment)
    assert then > in_scope
    wait_until(lambda: ticks(deployment) >= ticked + 3, "ticks going on")
    assert left(deployment) == then
    errors = deployment.rows(
        "select error from maintenance.runs where job = 'reap' and error is not null"
    )
    # WHY such may be: with so short a period a part may wait behind another run's for too long.
    assert all(run["error"].endswith("never came back") for run in errors), errors
    assert deployment.journal()["reap/skipped/paused"] >= then

    cli.json("resume", "reap")
    wait_until(lambda: left(deployment) == in_scope, "all but the paused scope", 60)
    cli.json("resume", "reap", "--scope", "s1")
    wait_until(lambda: left(deployment) == 0, "the rest", 60)
    assert deployment.journal()["reap/max_age"] == total
