"""The two queues, how they are declared on each kind of broker, and how a message is sent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from kombu import Exchange, Queue

# WHY other names than release 0.1.0 had: there they are classic queues on RabbitMQ, which refuses
# to declare one anew as a quorum queue; and as the name is part of a policy or an alert, it is the
# same on every broker.
SCHEDULED: Final = "sema-maintenance.scheduled"
OPERATOR: Final = "sema-maintenance.operator"

# How long whoever sends waits for the broker, and for its word that it has the message.
_ANSWER_WITHIN: Final = timedelta(seconds=10)

# How a lost broker is tried again, in seconds. WHY not the library's half a minute at last: one
# that is back is not to wait for its workers.
RETRIED: Final = {"interval_start": 1, "interval_step": 1, "interval_max": 5}

# WHY quorum: a classic queue is gone with its node. WHY a limit: a message whose reader died before
# it could acknowledge would otherwise be handed to one after another for ever.
_ON_RABBITMQ: Final = {"x-queue-type": "quorum", "x-delivery-limit": 5}


def is_rabbitmq(broker_url: str) -> bool:
    """Whether it names a broker that speaks AMQP."""
    return broker_url.startswith(("amqp://", "amqps://", "pyamqp://"))


def queues(broker_url: str) -> list[Queue]:
    """The scheduled and the operator's queue, each with an exchange of its own."""
    arguments = _ON_RABBITMQ if is_rabbitmq(broker_url) else None
    return [
        Queue(name, Exchange(name), routing_key=name, queue_arguments=arguments)
        for name in (SCHEDULED, OPERATOR)
    ]


def sending(lifetime: timedelta) -> dict[str, Any]:
    """The options of a message that is worth reading for this long.

    WHY twice: a worker drops what has expired, on any broker; RabbitMQ drops it by its own clock,
    so that a queue without a worker does not grow.
    """
    return {
        "expires": lifetime.total_seconds(),
        "expiration": lifetime.total_seconds(),
        "timeout": _ANSWER_WITHIN.total_seconds(),
        "confirm_timeout": _ANSWER_WITHIN.total_seconds(),
    }
