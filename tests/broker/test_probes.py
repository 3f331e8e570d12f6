"""What the probes go by is left by the consumer's loop and the beat on every broker."""

from tests.broker.brokers import Broker
from tests.broker.conftest import Deploy
from tests.e2e.probing import Probed, stay_alive


def test_loops_leave_their_marks_on_every_broker(deploy: Deploy, broker: Broker) -> None:
    """Alive and ready for longer than a loop may stand still; then they do stand still."""
    deployment = deploy(broker).deployment
    probed = [Probed(deployment, kind) for kind in ("worker", "beat")]
    for each in probed:
        each.is_well()
    stay_alive(*probed)

    held = [each.hold("main") for each in probed]

    for each in probed:
        each.says("/healthz", 503, "has not turned since")
    for file in held:
        file.unlink()
    for each in probed:
        each.is_well()
        each.ends()
