"""Celery's consumer without what would give the broker a say over this worker."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from celery.worker import consumer
from celery.worker.consumer.connection import Connection
from celery.worker.consumer.tasks import Tasks
from celery.worker.state import maybe_shutdown

from worker.context import current
from worker.envelope import admit
from worker.loops import TURN_S
from worker.queues import RETRIED
from worker.transports import told

log = logging.getLogger("sema_maintenance.consumer")

# What the library logs of each single loss; a loop says it once until it has its broker again.
_SAID_BY_THE_LOOP: Final = (consumer.consumer.CONNECTION_ERROR, consumer.consumer.CONNECTION_RETRY)


def _is_news(record: logging.LogRecord) -> bool:
    arguments = record.args if isinstance(record.args, tuple) else ()
    return not {record.msg, *arguments[:1]} & {*_SAID_BY_THE_LOOP}


class OnlyTasks(Tasks):
    """Takes messages. WHY ours: the library's asks for the step that greets all other workers."""

    requires = (Connection,)


class Consumer(consumer.Consumer):
    """Consumes tasks. WHY no gossip, mingle, events or control: the broker has no authority."""

    class Blueprint(consumer.Consumer.Blueprint):
        """The steps of a consumer that only consumes."""

        # WHY no delayed delivery: it declares 28 queues on RabbitMQ for messages that are to wait,
        # and none of ours is.
        default_steps = [  # noqa: RUF012 - the library's own shape
            "celery.worker.consumer.connection:Connection",
            "worker.consumer:OnlyTasks",
            "celery.worker.consumer.consumer:Evloop",
        ]

    # What the step for events would set.
    event_dispatcher = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._loop = current().loops.consumer
        self._lost_in_a_row = 0
        consumer.consumer.logger.addFilter(_is_news)
        super().__init__(*args, **kwargs)

    def register_with_event_loop(self, hub: Any) -> None:
        """Leave marks in the loop that reads from sockets; it begins anew with each connection."""
        super().register_with_event_loop(hub)
        hub.call_repeatedly(TURN_S, self._turned)

    def perform_pending_operations(self) -> None:
        """What the loop of a transport without sockets does first in each turn."""
        if self.hub is None:
            self._turned()
        super().perform_pending_operations()

    def _turned(self) -> None:
        self._loop.turned()
        self._loop.reached()
        self._lost_in_a_row = 0

    def ensure_connected(self, conn: Any) -> Any:
        """Connect, however long that takes: a loop that waits for its broker turns all the same."""

        def failed(error: Exception, _interval_s: float) -> None:
            self._loop.lost(f"{conn.as_uri()}: {error}")

        def waiting() -> None:
            self._loop.turned()
            maybe_shutdown()

        conn.ensure_connection(failed, None, callback=waiting, **RETRIED)
        self.first_connection_attempt = False
        return conn

    def on_connection_error_before_connected(self, exc: Exception) -> None:
        """What is done about a broker that cannot be reached."""
        self._loop.turned()
        self._loop.lost(str(exc))
        super().on_connection_error_before_connected(exc)
        self._pause()

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """What is done about a broker that went away."""
        self._loop.turned()
        self._loop.lost(str(exc))
        super().on_connection_error_after_connected(exc)
        self._pause()

    def _pause(self) -> None:
        """Let some time pass where the last connection was of no use either.

        WHY: a broker that takes connections and refuses the work would be asked without a break.
        """
        wait_s = min(
            self._lost_in_a_row * RETRIED["interval_step"],
            RETRIED["interval_max"],
        )
        self._lost_in_a_row += 1
        ends = time.monotonic() + wait_s
        while (left_s := ends - time.monotonic()) > 0:
            self._loop.turned()
            maybe_shutdown()
            time.sleep(min(left_s, TURN_S))

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], None]:
        """What is called with each message; one that cannot be read is logged and dropped.

        WHY: the library drops three kinds of malformed message; any other ends the process, or is
        put back and read again for ever.
        """
        handle = super().create_task_handler(*args, **kwargs)
        # WHY not this one: the library lists it for Redis, where a message provokes it as well.
        lost = tuple({*self.connection_errors, *self.channel_errors} - {AttributeError})

        def handle_or_drop(message: Any) -> None:
            try:
                admit(message)
                handle(message)
            except lost:
                raise
            except Exception as error:  # noqa: BLE001 - whatever a message can provoke
                self.on_decode_error(message, error)

        return handle_or_drop

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Drop a message that cannot be read, also one that could not even be unpacked."""
        log.warning("message_dropped", extra={"problem": told(exc)})
        if not message.acknowledged:
            message.ack()
