"""Celery's consumer without the steps by which workers talk to one another through the broker."""

from __future__ import annotations

from celery.worker import consumer


class Consumer(consumer.Consumer):
    """Consumes tasks. WHY no gossip, mingle, events or control: the broker has no authority."""

    class Blueprint(consumer.Consumer.Blueprint):
        """The steps of a consumer that only consumes."""

        default_steps = [  # noqa: RUF012 - the library's own shape
            "celery.worker.consumer.connection:Connection",
            "celery.worker.consumer.tasks:Tasks",
            "celery.worker.consumer.delayed_delivery:DelayedDelivery",
            "celery.worker.consumer.consumer:Evloop",
        ]
