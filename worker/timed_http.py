"""One connection to one HTTP server, on which no request takes longer than it may.

WHY not the library's own time-out: it starts anew with every byte that arrives, so that a server
which sends one now and then holds a thread for ever.
"""

from __future__ import annotations

import http.client
import io
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
        self._socket.settimeout(left(self.ends))
        self._socket.sendall(data)

    def recv_into(self, buffer: Any) -> int:
        """Wait for the next bytes; 0 at the end. Raises TimeoutError."""
        self._socket.settimeout(left(self.ends))
        return self._socket.recv_into(buffer)

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
        was_open = self._connection is not None
        try:
            return self._request(method, target, headers, ends)
        except ConnectionError:
            self.close()
            if not was_open:
                raise
            return self._request(method, target, headers, ends)
        except BaseException:
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
        if not response.will_close:
            # WHY so short: the status is known, and what it stands for is done.
            timed.ends = min(ends, time.monotonic() + _BODY_MAX_S)
            with suppress(OSError, http.client.HTTPException):
                response.read(_BODY_MAX)
        if response.will_close or not response.isclosed() or reply.status < http.HTTPStatus.OK:
            self.close()
        return reply

    def _opened(self, ends: float) -> tuple[http.client.HTTPConnection, _Timed]:
        if self._connection is None or self._timed is None:
            self._timed = _Timed(self._connect(ends))
            self._connection = http.client.HTTPConnection(self._host, self._port)
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
                return self._tls.wrap_socket(connecting, server_hostname=self._host)
            except OSError as error:
                connecting.close()
                failed = error
        raise failed
