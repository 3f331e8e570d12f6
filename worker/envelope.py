"""What of a message is read at all: its name, its named arguments, and when it expires.

Celery lets a message say what is to be called next with its result (callbacks, chains, chords),
when and for how long it is to run, how often it was tried, how it is to be called in the log, and
where its result is to go. Whoever can publish to the broker must have none of that here: a message
is taken apart, judged, and put together anew from the little that is ours.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from celery.exceptions import InvalidTaskError
from kombu import compression

log = logging.getLogger("sema_maintenance.envelope")

TICK: Final = "maintenance.tick"
PART: Final = "maintenance.part"
REQUEST: Final = "maintenance.request"
POLL: Final = "maintenance.requests"

# The messages there are, with the arguments that are read; whatever else they bring is ignored, for
# a newer release may send more.
ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    TICK: ("job",),
    PART: ("run_id", "part"),
    REQUEST: ("request_id",),
    POLL: (),
}
BODY_MAX_BYTES: Final = 16 * 1024
_VALUE_MAX_CHARS: Final = 200
_UTF_8: Final = ("utf-8", "utf8", "us-ascii")


def admit(message: Any) -> None:
    """Reduce a message to what is read of it. Raises InvalidTaskError for one that is none of ours.

    What stays in it is ours: its headers, its body, and which queue and delivery it belongs to.
    """
    headers, arguments = _judged(message)
    message.headers = headers
    message.body = json.dumps([[], arguments, {}])
    message.content_type, message.content_encoding = "application/json", "utf-8"
    message._decoded_cache = None  # noqa: SLF001 - decoded before, it would still be the old one
    for name in ("reply_to", "correlation_id"):
        message.properties.pop(name, None)


def _judged(message: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    headers = message.headers
    if not isinstance(headers, dict):
        raise InvalidTaskError("it has no headers")
    name = headers.get("task")
    if not isinstance(name, str) or name not in ARGUMENTS:
        raise InvalidTaskError(f"there is no message {_briefly(name)}")
    if headers.get("eta") is not None:
        # WHY: one that is to wait keeps a place in memory for as long as it likes.
        raise InvalidTaskError("it is to be done later, which none of ours is")
    expires = _expires(headers.get("expires"))
    if expires is not None and (late := datetime.now(UTC) - expires) > timedelta(0):
        # WHY a word: that happens also where the clocks of the sender and of this machine differ,
        # and then no tick is ever done.
        log.info(
            "message_expired",
            extra={"message_name": name, "seconds_ago": round(late.total_seconds())},
        )
    _, kwargs, _ = _members(message)
    arguments = {each: kwargs[each] for each in ARGUMENTS[name] if each in kwargs}
    for argument, value in arguments.items():
        if not _is_plain(value):
            raise InvalidTaskError(f"{name} is given a {argument} that can be none")
    # WHY an id of our own: the library keeps what it works on by id, and one can be had twice.
    ours = {"lang": "py", "task": name, "id": str(uuid.uuid4()), "retries": 0}
    return ours | ({} if expires is None else {"expires": expires.isoformat()}), arguments


def _members(message: Any) -> tuple[list[Any], dict[str, Any], Any]:
    body, encoding = message.body, message.content_encoding
    if message.content_type != "application/json":
        raise InvalidTaskError(f"it is not JSON but {_briefly(message.content_type)}")
    if not isinstance(encoding, str) or encoding.lower() not in _UTF_8:
        raise InvalidTaskError(f"its encoding is {_briefly(encoding)}")
    if not isinstance(body, str | bytes) or len(body) > BODY_MAX_BYTES:
        raise InvalidTaskError(f"its body is none, or over {BODY_MAX_BYTES} bytes")
    try:
        members = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidTaskError(f"its body is no JSON that can be read: {error}") from error
    match members:
        case [list() as args, dict() as kwargs, embedded]:
            return args, kwargs, embedded
        case _:
            raise InvalidTaskError("its body is not a list of arguments, by place and by name")


def _expires(value: object) -> datetime | None:
    if value is None:
        return None
    try:
        if not isinstance(value, str):
            raise TypeError
        at = datetime.fromisoformat(value)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise InvalidTaskError(f"it expires at {_briefly(value)}, which is no time") from None


def _is_plain(value: object) -> bool:
    match value:
        case None | bool() | float():
            return True
        case str():
            return len(value) <= _VALUE_MAX_CHARS
        case int():
            # WHY: no number of ours is larger, and Postgres has a limit of its own.
            return abs(value) < 2**63
        case _:
            return False


def _briefly(value: object) -> str:
    return repr(value)[:80]


def refuse_compression() -> None:
    """Let nothing be unpacked: a message of ours is small, and a few bytes can become gigabytes.

    Safe to repeat.
    """
    for content_type in compression.encoders():
        encoder, _ = compression.get_encoder(content_type)
        compression.register(encoder, _unpack_nothing, content_type)


def _unpack_nothing(_: object) -> bytes:
    raise ValueError("it is compressed, which none of ours is")
