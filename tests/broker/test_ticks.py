"""From beat to worker to journal to row, on every broker and pool: once, whatever is sent twice."""

import time
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from store import runs
from tests.broker.brokers import Broker
from tests.broker.conftest import Deploy
from tests.broker.deployed import policy
from tests.waiting import wait_until
from worker.queues import OPERATOR, SCHEDULED, sending

TICK, PART = "maintenance.tick", "maintenance.part"
JOBS = ("reap", "flip_stale_running", "reconcile_parked", "release_sessions")


def test_tick_goes_all_the_way_to_the_row(
    deploy: Deploy, broker: Broker, pool: str, tmp_path: Path
) -> None:
    """Started by hand the ordinary way; both end in order and have nothing to complain about."""
    deployed = deploy(broker, POLICY_FILE=policy(tmp_path))
    deployed.rows_due(30, scopes=3)
    worker, beat = deployed.worker(pool), deployed.beat()

    wait_until(lambda: deployed.left() == 0, "every row gone")
    wait_until(lambda: deployed.runs() >= 2, "runs on record")

    assert deployed.reaped() == 30
    assert deployed.deployment.number("select count(*) from maintenance.session_releases") == 30
    assert [beat.ends(), worker.ends()] == [0, 0]
    assert beat.complaints() + worker.complaints() == []


def test_two_beats_and_three_workers_do_each_tick_once(
    deploy: Deploy, broker: Broker, tmp_path: Path
) -> None:
    """Also while one of each is killed and another takes its place."""
    deployed = deploy(broker, POLICY_FILE=policy(tmp_path, jobs=JOBS))
    workers = [deployed.worker(pool) for pool in ("threads", "prefork", "threads")]
    beats = [deployed.beat(), deployed.beat()]

    def slots(job: str) -> int:
        return deployed.deployment.number(
            "select count(distinct slot) from maintenance.runs where job = %s", job
        )

    wait_until(lambda: all(slots(job) >= 3 for job in JOBS), "three slots of each job")
    for killed in (workers[0], beats[0]):
        killed.kill()
    deployed.worker("prefork")
    deployed.beat()
    before = {job: slots(job) for job in JOBS}
    wait_until(lambda: all(slots(job) >= before[job] + 3 for job in JOBS), "three more")

    rows = deployed.deployment.rows
    assert rows(
        "select job, slot from maintenance.runs where slot is not null"
        " group by 1, 2 having count(*) > 1"
    ) == []  # fmt: skip
    # By the database's clock, whatever the beats' clocks say.
    assert rows(
        "select job, slot from maintenance.runs where job = any (%s)"
        " and (slot %% 1000 <> 0 or started_at not between slot and slot + 999)",
        list(JOBS),
    ) == []  # fmt: skip
    assert deployed.runs("failed") <= len(JOBS), "more was lost than the killed worker had in hand"


def test_message_delivered_again_works_once(
    deploy: Deploy, broker: Broker, pool: str, tmp_path: Path
) -> None:
    """The tick of a slot, and a part of a run, five times each."""
    deployed = deploy(broker, POLICY_FILE=policy(tmp_path, every="1h"))
    deployed.rows_due(10)
    worker = deployed.worker(pool)

    for _ in range(5):
        deployed.send(TICK, job="reap")
    wait_until(lambda: deployed.runs() == 1, "the run")
    [part] = deployed.deployment.rows(
        "select run_id, part from maintenance.run_parts where part > 0 and scopes is not null"
    )
    for _ in range(5):
        deployed.send(PART, run_id=str(part["run_id"]), part=part["part"])

    wait_until(lambda: len(worker.lines(event="part_passed_over")) == 5, "five messages refused")
    assert deployed.runs() == 1
    assert (deployed.left(), deployed.reaped()) == (0, 10)


def test_part_whose_message_was_lost_is_made_up_for(
    deploy: Deploy, broker: Broker, tmp_path: Path
) -> None:
    """It is marked as lost by a later tick, whose own parts find the same work."""
    deployed = deploy(broker, POLICY_FILE=policy(tmp_path))
    deployed.rows_due(10)
    database = deployed.deployment.database
    run = runs.claim_tick(database, "reap", timedelta(seconds=1), uuid4())
    assert run is not None
    runs.cut(database, run, ["s0"], 10)

    deployed.worker()
    deployed.beat()

    wait_until(lambda: deployed.left() == 0, "every row gone")
    wait_until(lambda: deployed.runs("failed") == 1, "the first run given up")
    parts = deployed.deployment.rows(
        "select state from maintenance.run_parts where run_id = %s and part > 0", run.run_id
    )
    assert [part["state"] for part in parts] == ["lost"]
    assert deployed.reaped() == 10


def test_operators_queue_is_read_beside_a_backlog(
    deploy: Deploy, broker: Broker, pool: str, tmp_path: Path
) -> None:
    """What was sent there last is done while hundreds of earlier ones still wait."""
    deployed = deploy(broker, POLICY_FILE=policy(tmp_path, every="1h"), WORKER_CONCURRENCY=1)
    for _ in range(1500):
        deployed.send(TICK, job="reap")
    deployed.send(TICK, job="release_sessions", queue=OPERATOR)

    deployed.worker(pool)

    released = "select count(*) from maintenance.runs where job = 'release_sessions'"
    wait_until(lambda: deployed.deployment.number(released) == 1, "the operator's turn")
    assert broker.waiting(SCHEDULED) > 0


def test_message_that_nobody_read_in_time_does_nothing(
    deploy: Deploy, broker: Broker, tmp_path: Path
) -> None:
    """RabbitMQ drops it by itself; from a Redis list it is taken by a worker, which drops it."""
    deployed = deploy(broker, POLICY_FILE=policy(tmp_path, every="1h"))
    lifetime = timedelta(seconds=1)
    deployed.app.send_task(TICK, kwargs={"job": "reap"}, **sending(lifetime))
    sent = time.monotonic()

    wait_until(lambda: time.monotonic() > sent + lifetime.total_seconds() + 0.2, "its time over")
    if not broker.is_redis:
        wait_until(lambda: broker.waiting(SCHEDULED) == 0, "an empty queue")
    deployed.worker()
    deployed.send(TICK, job="release_sessions")

    wait_until(lambda: deployed.runs() == 1, "the one that came after it")
    reaps = "select count(*) from maintenance.runs where job = 'reap'"
    assert deployed.deployment.number(reaps) == 0
