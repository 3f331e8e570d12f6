"""How a worker ends: in order when it is asked to, and without loss of more than a part if not."""

from pathlib import Path

from tests.broker.brokers import Broker
from tests.broker.conftest import Deploy
from tests.broker.deployed import GRACE_S, policy
from tests.waiting import wait_until

TICK = "maintenance.tick"
ROWS = 20_000


def test_sigterm_ends_a_worker_after_the_batch_in_hand(
    deploy: Deploy, broker: Broker, pool: str, tmp_path: Path
) -> None:
    """A part that would go on for long stops between two batches; all that it did is counted."""
    deployed = deploy(broker, POLICY_FILE=policy(tmp_path, every="1h"), ROWS_PER_BATCH=1)
    deployed.rows_due(ROWS)
    worker = deployed.worker(pool)
    deployed.send(TICK, job="reap")
    wait_until(lambda: deployed.reaped() > 20, "the reap under way")

    assert worker.ends(GRACE_S) == 0

    gone = ROWS - deployed.left()
    assert 20 < gone < ROWS
    assert deployed.reaped() == gone
    assert deployed.deployment.number("select count(*) from maintenance.session_releases") == gone
    [run] = deployed.deployment.rows("select * from maintenance.runs where job = 'reap'")
    assert (run["state"], run["report"]) == ("succeeded", {"max_age": gone})
    assert deployed.deployment.number("select count(*) from maintenance.run_parts where more") == 1
    assert worker.complaints() == []


def test_sigkill_costs_the_part_in_hand_and_the_next_tick_makes_up_for_it(
    deploy: Deploy, broker: Broker, pool: str, tmp_path: Path
) -> None:
    """What it had done is counted once, and its part is marked as lost when its time is over."""
    deployed = deploy(broker, POLICY_FILE=policy(tmp_path))
    deployed.rows_due(ROWS)
    worker = deployed.worker(pool, ROWS_PER_BATCH=1)
    deployed.send(TICK, job="reap")
    wait_until(lambda: deployed.reaped() > 20, "the reap under way")

    worker.kill()

    open_parts = "select count(*) from maintenance.run_parts where state = 'running'"
    assert deployed.deployment.number(open_parts) == 1
    # WHY by hand: a part has minutes before it counts as lost.
    deployed.deployment.do("update maintenance.run_parts set started_at = started_at - 3600000")
    deployed.worker(pool)
    deployed.beat()

    wait_until(lambda: deployed.left() == 0, "every row gone")
    wait_until(lambda: deployed.runs("failed") == 1, "the killed run given up")
    assert deployed.reaped() == ROWS
    lost = "select count(*) from maintenance.run_parts where state = 'lost'"
    assert deployed.deployment.number(lost) == 1
