"""What is looked over beside the database: the broker and its queues, the policy, transcripts."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from socket import gaierror
from ssl import SSLError
from typing import Any, Final

from amqp.exceptions import AccessRefused
from kombu import Connection
from kombu.exceptions import KombuError
from redis.exceptions import AuthenticationError, InvalidResponse
from redis.exceptions import TimeoutError as RedisTimeout

from config.errors import PolicyError
from config.policy import Policy
from config.settings import Settings
from store.diagnosis import Finding, error, not_made, ok, warning
from worker.queues import OPERATOR, SCHEDULED, is_rabbitmq
from worker.release_http import HttpRelease
from worker.transports import install

# How long a broker that says nothing counts as one that is there, in seconds.
_SILENCE_S: Final = 5
# Ticks come a few a minute and expire: so many that wait are read by nobody.
_BACKLOG: Final = 1000
# What release 0.1.0 called its queues.
_OLD_QUEUES: Final = ("scheduled", "operator")

Lines = Iterator[tuple[str, Finding]]


def policy(found: Policy | PolicyError) -> Iterator[Finding]:
    """Whether the policy can be read, and whether it lets anything be done at all."""
    if isinstance(found, PolicyError):
        for problem in found.problems:
            yield error(problem, "sema-maintenance policy check FILE")
        return
    layers = (found.defaults, *(override.sets for override in found.overrides))
    named = {arm for sets in layers for arm, value in sets.items() if value is not None}
    without = {
        "nothing is ever deleted (no max_age, no keep)": {"max_age", "keep"},
        "no silent row is ever marked failed (no stale_running_max_age)": {"stale_running_max_age"},
    }
    missing = [said for said, arms in without.items() if not arms & named]
    for said in missing:
        yield warning(f"{found.source}: {said}", "sema-maintenance policy explain SCOPE")
    if not missing:
        yield ok(f"{found.source}: can be read, and sets {', '.join(sorted(named))}")


def releases(settings: Settings) -> Iterator[Finding]:
    """Whether transcripts can be released, as far as that can be told without releasing any."""
    if settings.release_backend == "none":
        yield ok("MAINT_RELEASE_BACKEND = none: transcripts are kept, their releases dropped")
        return
    if settings.release_url is None:
        yield ok("transcripts are deleted in the ledger's agent_sessions")
        return
    release = HttpRelease(
        settings.release_url, settings.release_token_file, settings.release_timeout, 1
    )
    problem = release.problem()
    release.close()
    if problem is not None:
        yield error(f"no transcript can be released: {problem}", "see to MAINT_RELEASE_TOKEN_FILE")
        return
    token = "no token" if settings.release_token_file is None else "a token"
    yield ok(f"MAINT_RELEASE_URL can be used, with {token}; nothing was sent there")


def broker(settings: Settings) -> Lines:
    """Whether each broker lets us in, and how its queues are."""
    url = settings.broker.get_secret_value()
    if url.startswith("memory:"):
        yield (
            "broker",
            ok("memory://, which is enough for `sema-maintenance run`; celery needs a broker"),
        )
        return
    install()
    for each in url.split(";"):
        yield from _broker(each)


def _broker(url: str) -> Lines:
    options = (
        {"read_timeout": _SILENCE_S, "write_timeout": _SILENCE_S}
        if is_rabbitmq(url)
        else {"socket_timeout": _SILENCE_S, "socket_connect_timeout": _SILENCE_S}
    )
    with Connection(
        url, connect_timeout=_SILENCE_S, heartbeat=0, transport_options=options
    ) as connection:
        # WHY not its own way to say it: that one keeps the name of the user, and we need no more.
        where = f"{url.partition(':')[0]}://{connection.hostname}:{_port(connection)}"
        troubles = (
            *connection.connection_errors,
            *connection.channel_errors,
            KombuError,
            OSError,
        )
        try:
            connection.channel().close()
        except troubles as trouble:
            yield "broker", error(f"{where} lets nobody in: {_in_words(trouble)}", _SEE_TO_IT)
            yield "queues", not_made("needs the broker")
            return
        yield "broker", ok(f"{where} lets us in")
        for name in (SCHEDULED, OPERATOR):
            try:
                yield "queues", _queue(connection, name)
            except troubles as trouble:
                yield "queues", not_made(f"{name}: {_in_words(trouble)}")
        for name in _OLD_QUEUES:
            try:
                old = _depth(connection, name)
            except troubles as trouble:
                yield "old queues", not_made(f"{name}: {_in_words(trouble)}")
                continue
            yield "old queues", _left_behind(connection, name, old)


def _in_words(trouble: BaseException) -> str:
    """Why a broker cannot be used, without the names that a library gives its errors."""
    causes = [trouble]
    # WHY: redis wraps what the network said; Python keeps what it was.
    while (before := causes[-1].__cause__ or causes[-1].__context__) and before not in causes:
        causes.append(before)
    for cause in causes:
        match cause:
            case ConnectionRefusedError():
                return "the connection is refused, so nothing listens there"
            case TimeoutError() | RedisTimeout():
                return f"there was no answer within {_SILENCE_S} s"
            case gaierror():
                return "no address is known for its name"
            case SSLError():
                return f"TLS fails: {cause.reason or 'what answers does not speak it'}"
            case AuthenticationError() | AccessRefused():
                return "the login is refused"
            case ConnectionResetError() | BrokenPipeError():
                return "it ended the connection"
            case InvalidResponse() | OSError(errno=errno.EINVAL):
                return "what answers there is no such broker"
    said = getattr(trouble, "reply_text", None) or getattr(trouble, "strerror", None)
    return str(said or trouble)[:_SAID_MAX] or "it ended the connection"


# What a broker says may be of any length.
_SAID_MAX: Final = 200
_SEE_TO_IT: Final = "see to the broker, the network and MAINT_BROKER_URL"


def _port(connection: Any) -> int:
    return int(connection.port or connection.transport.default_port or 0)


def _queue(connection: Any, name: str) -> Finding:
    found = _depth(connection, name)
    if found is None:
        return warning(
            f"{name} is not there: no worker has ever connected to this broker, or it lost "
            "everything",
            "celery -A worker worker    # declares it as it starts",
        )
    messages, consumers = found
    waits = f"{name} holds {messages:,} messages"
    if consumers == 0:
        return warning(f"{waits}, and no worker reads it", "celery -A worker worker")
    if messages > _BACKLOG:
        return warning(
            f"{waits}: workers are too few, or none is at work", "celery -A worker worker"
        )
    if consumers is not None:
        waits += f" and has {consumers} consumer{'' if consumers == 1 else 's'}"
    return ok(waits)


def _left_behind(connection: Any, name: str, found: tuple[int, int | None] | None) -> Finding:
    if found is None:
        return ok(f"no queue {name} of release 0.1.0 is left")
    remedy = (
        f"rabbitmqctl delete_queue {name}"
        if is_rabbitmq(f"{connection.transport_cls}://")
        else f"redis-cli del {name} {_BINDING}{name}"
    )
    return warning(
        f"queue {name}, as release 0.1.0 had it, holds {found[0]:,} messages that nobody reads",
        f"{remedy}    # once no worker of 0.1.0 is left, and if it is no other application's",
    )


# Where the library keeps which queues a Redis knows: an empty one has no other trace there.
_BINDING: Final = "_kombu.binding."


def _depth(connection: Any, name: str) -> tuple[int, int | None] | None:
    """The messages of a queue, and its consumers where they can be known; None: it is not there."""
    # WHY a channel of its own: RabbitMQ closes the one on which something was not found.
    channel = connection.channel()
    try:
        if not is_rabbitmq(f"{connection.transport_cls}://"):
            client = channel.client
            messages = int(client.llen(name))
            return (messages, None) if messages or client.exists(f"{_BINDING}{name}") else None
        try:
            found = channel.queue_declare(name, passive=True)
        except connection.channel_errors as trouble:
            if getattr(trouble, "reply_code", None) == _NOT_FOUND:
                return None
            raise
        return int(found.message_count), int(found.consumer_count)
    finally:
        channel.close()


_NOT_FOUND: Final = 404
