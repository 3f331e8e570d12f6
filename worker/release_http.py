"""Delete transcripts in another system: one DELETE each, a few at a time, none longer than allowed.

Uses the standard library's client, because a limit on the whole request needs its socket, and
because it does nothing unasked: it follows no redirect, changes no path, and takes neither proxy
nor password from the environment. TLS trusts what the machine trusts; SSL_CERT_FILE and
SSL_CERT_DIR name something else.
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from importlib import metadata
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from config.durations import format_duration
from store.release_elsewhere import Answer, Key
from worker.timed_http import Line

# WHY a limit: a system that errs about the year must not hold an entry back for ever.
RETRY_AFTER_MAX: Final = timedelta(days=1)
_SYSTEM: Final = "the system that holds the transcripts"
_DONE_ALREADY: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
_NOT_LET_IN: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
# What says that the system, not this request, is the trouble.
_AWAY: Final = (
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
_TOKEN: Final = re.compile(r"[!-~]+")
_TOKEN_MAX: Final = 16 * 1024


class Unaddressable(ValueError):
    """No URL can be trusted to mean this transcript and no other."""


class Unprepared(Exception):
    """Something on this machine is missing for any request."""


class HttpRelease:
    """The other system, as the settings name it. Never raises: what goes wrong is in the answers.

    `limit` is for each request from connecting to the answer; looking up a name has the limits of
    the machine's resolver instead. Connects at the first request.
    """

    def __init__(
        self, template: str, token_file: Path | None, limit: timedelta, at_a_time: int
    ) -> None:
        self.at_a_time = at_a_time
        self._template = template
        self._token_file = token_file
        self._limit = limit
        self._lines: list[Line] = []

    def release(self, keys: Sequence[Key]) -> Sequence[Answer]:
        """Ask for each of these, all at once; gives an answer to each, in their order."""
        try:
            headers = self._ready()
        except Unprepared as error:
            return [Answer("put_back", str(error))] * len(keys)
        ask = partial(self._ask, headers=headers)
        if len(keys) == 1:
            return [ask(self._lines[0], keys[0])]
        with ThreadPoolExecutor(len(keys), thread_name_prefix="release") as pool:
            return list(pool.map(ask, self._lines, keys))

    def problem(self) -> str | None:
        """What on this machine keeps it from asking for anything; None: nothing. Sends nothing."""
        try:
            self._ready()
        except Unprepared as error:
            return str(error)
        return None

    def close(self) -> None:
        """Close the connections. Safe to repeat."""
        while self._lines:
            self._lines.pop().close()

    def _ready(self) -> dict[str, str]:
        """The headers of each request, once its lines are there. Raises Unprepared."""
        try:
            headers = self._headers()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise Unprepared(f"the token file {self._token_file} cannot be used: {why}") from error
        try:
            self._open_lines()
        except OSError as error:
            raise Unprepared(
                f"TLS cannot be set up: {error.strerror or type(error).__name__}"
            ) from error
        return headers

    def _headers(self) -> dict[str, str]:
        """WHY read each time: a token that was exchanged meanwhile is used from then on."""
        headers = {"User-Agent": f"sema-maintenance/{metadata.version('sema-maintenance')}"}
        if self._token_file is not None:
            with self._token_file.open("rb") as file:
                token = file.read(_TOKEN_MAX + 1).decode("latin-1").strip()
            # WHY checked: a line break in it would begin a header of somebody else's.
            if len(token) > _TOKEN_MAX or _TOKEN.fullmatch(token) is None:
                raise ValueError("it does not hold one token, without spaces, and nothing else")
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _open_lines(self) -> None:
        if not self._lines:
            secure = urlsplit(self._template).scheme.lower() == "https"
            tls = ssl.create_default_context() if secure else None
            self._lines = [Line(self._template, tls) for _ in range(self.at_a_time)]

    def _ask(self, line: Line, key: Key, *, headers: Mapping[str, str]) -> Answer:
        try:
            target = target_of(self._template, *key)
        except Unaddressable as error:
            return Answer("failed", str(error), final=True)
        try:
            reply = line.request("DELETE", target, headers, self._limit.total_seconds())
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            return Answer("failed", f"{_SYSTEM} {self._trouble(error)}", away=True)
        return answer_to(reply.status, reply.headers, time.time)

    def _trouble(self, error: Exception) -> str:
        """What to say of it. WHY not the library's words: they may quote what was sent."""
        match error:
            case TimeoutError():
                return f"did not answer within {format_duration(self._limit)}"
            case ssl.SSLCertVerificationError():
                return f"has a certificate that is not trusted: {error.verify_message}"
            case ssl.SSLError():
                return f"failed at TLS: {error.reason}"
            case socket.gaierror() | UnicodeError():
                return "has a name that was not found"
            case OSError():
                return f"cannot be reached: {error.strerror or 'the connection was closed'}"
            case _:
                return "answered something that is not HTTP"


def target_of(template: str, scope: str, session_id: str) -> str:
    """The path and query that a request names its transcript by. Raises Unaddressable.

    WHY refuse some: servers, and proxies before them, take an empty part or a `..` out of a path,
    however it is encoded, and the request would delete a neighbour, or everything.
    """
    for value in (scope, session_id):
        if not value or {".", ".."} & set(re.split(r"[/\\]", value)):
            raise Unaddressable("its scope or session is empty, or has a part . or ..")
    parts = urlsplit(template)
    places = {"{scope}": quote(scope, safe=""), "{session_id}": quote(session_id, safe="")}
    path, query = (
        re.sub(r"\{(?:scope|session_id)\}", lambda place: places[place[0]], text)
        for text in (parts.path, parts.query)
    )
    return f"{path or '/'}{'?' if query else ''}{query}"


def answer_to(status: int, headers: Message, clock: Callable[[], float]) -> Answer:
    """What a status means for the transcript that was asked for."""
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return Answer("released")
    if status in _DONE_ALREADY:
        return Answer("absent")
    said = f"{_SYSTEM} answered {_named(status)}"
    if status in _NOT_LET_IN:
        return Answer("put_back", f"{said}; see to the token in MAINT_RELEASE_TOKEN_FILE")
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        said += "; a redirect is not followed: correct MAINT_RELEASE_URL"
    return Answer("failed", said, retry_after(headers, clock), away=status in _AWAY)


def retry_after(headers: Message, clock: Callable[[], float]) -> timedelta | None:
    """For how long a server asked to be left alone, up to a day; None if it did not."""
    value = (headers.get("Retry-After") or "").strip()
    if re.fullmatch(r"[0-9]{1,4000}", value):
        asked = timedelta(seconds=min(int(value), RETRY_AFTER_MAX.total_seconds()))
    else:
        until = _date(value)
        if until is None:
            return None
        # WHY by its own date: its clock may be another than ours.
        asked = until - (_date(headers.get("Date") or "") or datetime.fromtimestamp(clock(), UTC))
    return min(asked, RETRY_AFTER_MAX) if asked > timedelta(0) else None


def _date(value: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _named(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
