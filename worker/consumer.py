"""Celery's consumer without what would give the broker a say over this worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], None]:
        """What is called with each message; one that cannot be read is logged and dropped.

        WHY: the library drops three kinds of malformed message; any other ends the process, or is
        put back and read again for ever.
        """
        handle = super().create_task_handler(*args, **kwargs)

        def handle_or_drop(message: Any) -> None:
            try:
                handle(message)
            except (*self.connection_errors, *self.channel_errors):
                raise
            except Exception as error:  # noqa: BLE001 - whatever a message can provoke
                self.on_decode_error(message, error)

        return handle_or_drop
