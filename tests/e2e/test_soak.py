"""Two beats and three workers under random kills: journal, tables and metrics agree throughout.

SEMA_TEST_SOAK_SECONDS makes it longer; ten minutes are a soak.
"""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import Servers
from tests.e2e.deployment import Deploy, deployments, valkey
from tests.e2e.soak import Soak, assert_books_agree, assert_metrics_agree, scraping

SECONDS = float(os.environ.get("SEMA_TEST_SOAK_SECONDS", "25"))
SEED = int(os.environ.get("SEMA_TEST_SOAK_SEED", "20261130"))
NUMBERS = itertools.count(1)
KILLS_A_MINUTE = 10


@pytest.fixture
def deploy(servers: Servers, tmp_path: Path) -> Iterator[Deploy]:
    with (
        valkey() as broker,
        deployments(tmp_path, servers.url("18"), broker, NUMBERS) as deploy,
    ):
        yield deploy


# WHY so much more: what is left when the kills are over is made up for.
@pytest.mark.timeout(SECONDS + 300)
def test_under_random_kills_everything_agrees(deploy: Deploy, tmp_path: Path) -> None:
    """At every instant while it goes on, and in the end, when all that was left is made up for."""
    soak = Soak.of(deploy, tmp_path, SEED)
    soak.start()
    with contextmanager(scraping)(soak.deployment) as scrapes:
        soak.run(SECONDS, scrapes)
        soak.finish()

    assert soak.kills >= SECONDS * KILLS_A_MINUTE / 60
    number = soak.deployment.number
    assert number("select count(*) from maintenance.journal_totals") > 0, "nothing was rolled up"
    for table in ("gone", "talks", "rejections", "runs"):
        assert number(f"select count(*) from seen.{table}") > soak.rounds, table
    for kind in ("flipped", "failed", "rolled_back"):
        assert number("select count(*) from seen.changed where kind = %s", kind) > 0, kind
    assert_books_agree(soak.deployment)
    assert_metrics_agree(soak.deployment)
    assert number("select count(*) from maintenance.session_releases") == 0
    stranded = (
        "select count(*) from public.agent_sessions s where not exists (select from"
        " public.background_agents a where a.scope = s.scope and a.session_id = s.session_id)"
    )
    assert number(stranded) == 0
