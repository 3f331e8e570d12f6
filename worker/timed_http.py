"""One connection to one HTTP server, on which no request takes longer than it may.

WHY not the library's own time-out: it starts anew with every byte that arrives, so that a server
which sends one now and then holds a thread for ever.
"""

from __future__ import annotations

import http.client
import io
import select
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from typing import Any, Final
from urllib.parse import urlsplit

CONNECT_MAX_S: Final = 5.0
# What of an answer's body is read, only so that the connection can be used again.
_BODY_MAX: Final = 64 * 1024
_BODY_MAX_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Reply:
    """The status and the headers of an answer; nobody needs its body."""

    status: int
    headers: Message


class _Timed:
    """A connected socket whose every operation has only what is left of one time limit.

    `ends` is by the monotonic clock. Has what http.client asks of a socket, and no more.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self.ends = 0.0

    def sendall(self, data: bytes) -> None:
        """Send everything. Raises TimeoutError."""
        # WHY not the socket's own: over TLS that has the whole time for each record of 16 KiB.
        unsent = memoryview(data)
        while unsent:
            self._socket.settimeout(left(self.ends))
            unsent = unsent[self._socket.send(unsent) :]

    def recv_into(self, buffer: Any) -> int:
        """Wait for the next bytes; 0 at the end. Raises TimeoutError."""
        self._socket.settimeout(left(self.ends))
        return self._socket.recv_into(buffer)

    def is_quiet(self) -> bool:
        """Whether nothing came that was not asked for, and nobody closed the other end."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return False
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return not poller.poll(0)

    def makefile(self, mode: str) -> io.BufferedReader:  # noqa: ARG002 - named by the library
        """What an answer is read from."""
        return io.BufferedReader(_Reader(self))

    def close(self) -> None:
        """Close the connection. Safe to repeat."""
        self._socket.close()


class _Reader(io.RawIOBase):
    def __init__(self, timed: _Timed) -> None:
        self._timed = timed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        return self._timed.recv_into(buffer)


def left(ends: float) -> float:
    """How many seconds are left. Raises TimeoutError where none are."""
    seconds = ends - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


# How a connection that was left open turns out to be gone: over TLS also in words of its own.
_GONE: Final = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)


class Line:
    """Requests to one server, one after another, on one connection as long as it lasts.

    `tls` None: without. Not for two threads at once.
    """

    def __init__(self, url: str, tls: ssl.SSLContext | None) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or (80 if tls is None else 443)
        self._netloc = parts.netloc
        self._tls = tls
        self._timed: _Timed | None = None
        self._connection: http.client.HTTPConnection | None = None

    def request(
        self, method: str, target: str, headers: Mapping[str, str], limit_s: float
    ) -> Reply:
        """Ask without a body. Raises OSError (TimeoutError among them) and HTTPException.

        Asks once more where a connection that was left open has gone: only for methods that may be
        repeated.
        """
        ends = time.monotonic() + limit_s
        try:
            was_open = self._has_open_connection()
            try:
                return self._request(method, target, headers, ends)
            except _GONE:
                self.close()
                if not was_open:
                    raise
            return self._request(method, target, headers, ends)
        except BaseException:
            # WHY always: nothing may be sent on what is left of a connection that went wrong.
            self.close()
            raise

    def close(self) -> None:
        """Close the connection. Safe to repeat."""
        self._connection = None
        if self._timed is not None:
            self._timed.close()
            self._timed = None

    def _request(self, method: str, target: str, headers: Mapping[str, str], ends: float) -> Reply:
        connection, timed = self._opened(ends)
        timed.ends = ends
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", self._netloc)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        reply = Reply(response.status, response.headers)
        read = False
        if not response.will_close:
            # WHY so short: the status is known, and what it stands for is done.
            timed.ends = min(ends, time.monotonic() + _BODY_MAX_S)
            with suppress(OSError, http.client.HTTPException, ValueError):
                response.read(_BODY_MAX)
                read = response.isclosed()
        # WHY not by `isclosed` alone: a body that makes no sense is closed too, and not at its end.
        if not read or reply.status < http.HTTPStatus.OK:
            self.close()
        return reply

    def _has_open_connection(self) -> bool:
        # WHY quiet: what came unasked would be taken for the answer to the next request.
        if self._timed is not None and not self._timed.is_quiet():
            self.close()
        return self._timed is not None

    def _opened(self, ends: float) -> tuple[http.client.HTTPConnection, _Timed]:
        if self._connection is None or self._timed is None:
            self._timed = _Timed(self._connect(ends))
            self._connection = http.client.HTTPConnection(self._host, self._port)
            # WHY: the library would open another by itself, without TLS and without a time limit.
            self._connection.auto_open = 0
            self._connection.sock = self._timed
        return self._connection, self._timed

    def _connect(self, ends: float) -> socket.socket:
        """Try each address that the name has until one answers."""
        failed: OSError = OSError("the name has no address")
        for family, kind, protocol, _, where in socket.getaddrinfo(
            self._host, self._port, type=socket.SOCK_STREAM
        ):
            connecting = socket.socket(family, kind, protocol)
            try:
                connecting.settimeout(min(CONNECT_MAX_S, left(ends)))
                connecting.connect(where)
                connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._tls is None:
                    return connecting
                connecting.settimeout(min(CONNECT_MAX_S, left(ends)))
                return self._tls.wrap_socket(connecting, server_hostname=self._host)
            except OSError as error:
                connecting.close()
                failed = error
            except BaseException:
                connecting.close()
                raise
        raise failed
