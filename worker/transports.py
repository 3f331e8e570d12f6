"""The library's transports, less what a message of no sense can do to a consumer.

Celery drops a message that it cannot read; what it cannot even take for a message ends the process.
Such a thing is dropped here with one log line, before Celery sees it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import pack, unpack_from
from typing import Any, Final

from amqp import method_framing
from amqp.exceptions import AccessRefused, NotAllowed, RecoverableConnectionError
from amqp.serialization import PROPERTY_CLASSES
from kombu.transport import TRANSPORT_ALIASES, pyamqp, redis, virtual
from kombu.utils import json
from redis.exceptions import DataError, RedisError, ResponseError

log = logging.getLogger("sema_maintenance.transports")

# What is dropped is told in no more than this many characters.
_TOLD: Final = 200


def install() -> None:
    """Let the broker URLs' schemes mean these transports. Safe to repeat."""
    # WHY: an AttributeError, which a message can provoke, counts as a lost connection there.
    redis.loads = _read_json
    TRANSPORT_ALIASES.update(
        {
            "redis": "worker.transports:Redis",
            "rediss": "worker.transports:Redis",
            "amqp": "worker.transports:RabbitMQ",
            "pyamqp": "worker.transports:RabbitMQ",
            "amqps": "worker.transports:RabbitMQOverTLS",
        }
    )


def told(error: Exception) -> str:
    """What is wrong with a message, in a few words: what it says is its sender's."""
    return f"{type(error).__name__}: {error}"[:_TOLD]


# Redis and Valkey: a message is whatever somebody pushed onto a list.


_BODY_ENCODINGS: Final = (None, "utf-8", "base64")


def _is_envelope(payload: object) -> bool:
    """Whether it has what taking and acknowledging a message needs."""
    if not isinstance(payload, dict):
        return False
    properties = payload.get("properties")
    if not isinstance(properties, dict) or not isinstance(payload.get("headers"), dict):
        return False
    delivery = properties.get("delivery_info")
    return (
        isinstance(payload.get("body"), str)
        and properties.get("body_encoding") in _BODY_ENCODINGS
        and isinstance(properties.get("delivery_tag"), str)
        and isinstance(delivery, dict)
        and all(isinstance(delivery.get(name), str) for name in ("exchange", "routing_key"))
    )


def _read_json(text: str) -> Any:
    """The library's reader of envelopes; whatever it stumbles over is a ValueError."""
    try:
        return json.loads(text)
    except Exception as error:
        raise ValueError(f"not a message's envelope: {told(error)}") from error


class RedisQoS(redis.QoS):
    """Puts back what was taken and not acknowledged; what is no message is dropped.

    WHY: the library would stumble over such a thing for ever, and put nothing back behind it.
    """

    def ack(self, delivery_tag: Any) -> None:
        """Acknowledge one message; where that is refused it counts as done here all the same.

        WHY: it is being worked on already, and would take up room for the next one. What is left
        of it is put back in an hour, when it has expired.
        """
        try:
            super().ack(delivery_tag)
        except (RedisError, OSError) as error:
            log.warning("message_unacknowledged", extra={"problem": told(error)})
            virtual.QoS.ack(self, delivery_tag)

    def restore_by_tag(self, tag: Any, *args: Any, **kwargs: Any) -> None:
        """Put one message back."""
        try:
            super().restore_by_tag(tag, *args, **kwargs)
        except Exception as error:
            # WHY: all that a thing that is none can provoke; the rest is the broker's trouble.
            if isinstance(error, RedisError | OSError) and not isinstance(error, DataError):
                raise
            log.warning("message_dropped", extra={"problem": told(error)})
            self._remove_from_indices(tag).execute()


class RedisChannel(redis.Channel):
    """Pops messages; what is none is dropped, for it is off the list already."""

    QoS = RedisQoS

    def _do_restore_message(
        self,
        payload: Any,
        exchange: Any,
        routing_key: Any,
        pipe: Any,
        leftmost: bool = False,  # noqa: FBT001, FBT002 - the library's own shape
    ) -> None:
        # WHY not the library's: it logs a traceback of each that it cannot put back.
        is_addressed = isinstance(exchange, str) and isinstance(routing_key, str)
        if not (is_addressed and _is_envelope(payload)):
            raise ValueError(f"not a message's envelope: {str(payload)[:_TOLD]}")
        payload["headers"]["redelivered"] = True
        payload["properties"]["delivery_info"]["redelivered"] = True
        priority = self._get_message_priority(payload, reverse=False)
        push = pipe.lpush if leftmost else pipe.rpush
        queues = self._lookup(exchange, routing_key)
        if not queues:
            raise ValueError("no queue to put it back onto")
        for queue in queues:
            push(self._q_for_pri(queue, priority), json.dumps(payload))

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)
        except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
            # WHY these: whatever taking an envelope apart provokes, and nothing that a lost
            # connection does.
            log.warning("message_dropped", extra={"problem": told(error)})
            return True
        except ResponseError:
            # WHY: what is being closed is read once more, and what it answers is nobody's any more.
            if self._closing:
                return True
            raise


class Redis(redis.Transport):
    """Redis and Valkey; one that refuses a command counts as one that is away.

    WHY: a replica, one that is full, or a user without permission answers, and may do the work
    again a moment later. The library lets the process end instead.
    """

    Channel = RedisChannel
    connection_errors = (*redis.Transport.connection_errors, ResponseError)

    def _deliver(self, message: object, queue: str) -> None:
        # WHY here: past this point the library would take a missing member for a lost connection.
        if not _is_envelope(message):
            raise ValueError(f"not a message's envelope: {str(message)[:_TOLD]}")
        super()._deliver(message, queue)


# RabbitMQ: a frame is always well-formed, its properties need not be.


def frame_handler(connection: Any, callback: Callable[..., Any]) -> Callable[[Any], Any]:
    """Reads frames as the library does; properties that it cannot read count as absent.

    WHY: a header with a date past the year 9999 would end the process before the message could be
    acknowledged, and then whoever gets it next.
    """
    handle = method_framing.frame_handler(connection, callback)

    def handle_readable(frame: Any) -> Any:
        frame_type, channel, buffer = frame
        if frame_type == _HEADER and not _is_readable(buffer):
            return handle((frame_type, channel, bytes(buffer[:_PROPERTIES_AT]) + _NO_PROPERTIES))
        return handle(frame)

    return handle_readable


_HEADER: Final = 2
_PROPERTIES_AT: Final = 12
_NO_PROPERTIES: Final = pack(">H", 0)


def _is_readable(buffer: Any) -> bool:
    class_id, _ = unpack_from(">HxxQ", buffer, 0)
    try:
        PROPERTY_CLASSES[class_id](buffer, _PROPERTIES_AT)
    except Exception as error:  # noqa: BLE001 - whatever properties can provoke
        log.warning("properties_dropped", extra={"problem": told(error)})
        return False
    return True


class RabbitMQMessage(pyamqp.Message):
    """Acknowledged, or not where the connection is lost meanwhile: RabbitMQ then sends it again.

    WHY: the library logs a traceback of each message in hand, or lets the pool's thread end.
    """

    def ack_log_error(self, _logger: object, errors: Any, **how: bool) -> None:
        """Acknowledge."""
        _answer(self.ack, errors, how)

    def reject_log_error(self, _logger: object, errors: Any, **how: bool) -> None:
        """Reject."""
        _answer(self.reject, errors, how)


def _answer(way: Callable[..., object], errors: Any, how: dict[str, bool]) -> None:
    try:
        way(**how)
    except (OSError, *errors) as error:
        log.warning("message_unacknowledged", extra={"problem": told(error)})


class _Channel(pyamqp.Channel):
    Message = RabbitMQMessage


class _Connection(pyamqp.Connection):
    Channel = _Channel

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, frame_handler=frame_handler, **kwargs)


class RabbitMQ(pyamqp.Transport):
    """RabbitMQ; one that refuses the login, or has no such vhost, counts as one that is away.

    WHY: both may be mended without this process. The library lets it end instead.
    """

    Connection = _Connection

    def establish_connection(self) -> Any:
        """Connect. Raises one of the transport's `recoverable_connection_errors`."""
        try:
            return super().establish_connection()
        except (AccessRefused, NotAllowed) as error:
            raise RecoverableConnectionError(error.reply_text) from error


class RabbitMQOverTLS(RabbitMQ, pyamqp.SSLTransport):
    """RabbitMQ over TLS."""
