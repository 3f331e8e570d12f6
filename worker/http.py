"""A small HTTP server: a page for people, /metrics, /healthz, /readyz, and nothing else.

Every connection has a thread and a time limit of its own, so that one which says nothing holds up
nobody. No answer tells which software gave it.
"""

from __future__ import annotations

import errno
import logging
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from typing import Any, Final, NamedTuple

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from config.addresses import Address
from worker.context import Process
from worker.exporter import Exporter
from worker.page import CONTENT_SECURITY_POLICY, render
from worker.readings import Readings
from worker.standing import Standing

log = logging.getLogger("sema_maintenance.http")

CONNECTION_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.1
_BACKLOG: Final = 64


class Answer(NamedTuple):
    """What a page says."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    policy: str = "default-src 'none'; frame-ancestors 'none'"


def _line(status: HTTPStatus, text: str) -> Answer:
    return Answer(status, f"{text}\n".encode())


def _pages(
    process: Process, readings: Readings, exporter: Exporter
) -> Mapping[str, Callable[[], Answer]]:
    version = metadata.version("sema-maintenance")

    def page() -> Answer:
        read = readings.read()
        now = datetime.now(UTC)
        standing = Standing(version, now, read, process.entries, process.policy.windows)
        body = render(standing).encode("utf-8", "replace")
        html = "text/html; charset=utf-8"
        return Answer(HTTPStatus.OK, body, html, CONTENT_SECURITY_POLICY)

    def metrics() -> Answer:
        # WHY not negotiated: everybody reads the plain text format.
        body = generate_latest(exporter.registry)
        return Answer(HTTPStatus.OK, body, CONTENT_TYPE_PLAIN_0_0_4)

    def healthz() -> Answer:
        # WHY it asks nobody: a database that is down is no reason to start this process anew. WHY
        # not once it is to end: its loops end before the batch in hand does.
        stopped = None if process.stopping.is_set() else process.loops.stopped()
        if stopped is None:
            return _line(HTTPStatus.OK, "ok")
        return _line(HTTPStatus.SERVICE_UNAVAILABLE, stopped)

    def readyz() -> Answer:
        if process.stopping.is_set():
            return _line(HTTPStatus.SERVICE_UNAVAILABLE, "not ready: shutting down")
        loops = process.loops
        missing = (loops.stopped(), loops.without_broker(), readings.why_not_ready())
        if not any(missing):
            return _line(HTTPStatus.OK, "ready")
        reasons = "; ".join(filter(None, missing))
        return _line(HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {reasons}")

    return {"/": page, "/metrics": metrics, "/healthz": healthz, "/readyz": readyz}


def _notice(process: Process) -> None:
    """Say in the log when a loop stops, also where nobody asks."""
    if not process.stopping.is_set():
        process.loops.notice()


class _Handler(BaseHTTPRequestHandler):
    """Answers one request; the names of its methods are the library's."""

    server: _Server
    timeout = CONNECTION_TIMEOUT_S

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            here = ", ".join(self.server.pages)
            self._send(_line(HTTPStatus.NOT_FOUND, f"not found; there is {here}"))
            return
        try:
            answer = page()
        except Exception as error:
            # WHY broadly: whoever asks is to get an answer, and the defect a line in the log.
            log.exception("page_failed", extra={"page": self.path, "error": type(error).__name__})
            answer = _line(HTTPStatus.INTERNAL_SERVER_ERROR, "failed; the log says why")
        self._send(answer)

    do_HEAD = do_GET  # noqa: N815 - named by the library

    def send_error(
        self,
        code: int,
        message: str | None = None,  # noqa: ARG002 - it may quote the request
        explain: str | None = None,  # noqa: ARG002
    ) -> None:
        """Refuse what the library could not make sense of, in one line of our own."""
        self.close_connection = True
        if code == HTTPStatus.NOT_IMPLEMENTED:
            code = HTTPStatus.METHOD_NOT_ALLOWED
        status = HTTPStatus(code)
        self._send(_line(status, status.phrase.lower()))

    def _send(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        # WHY with every answer: none of them is to be taken for something else, or kept or framed.
        self.send_header("Content-Security-Policy", answer.policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        if answer.status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named by the library
        """What the library would print."""
        log.debug("http", extra={"client": self.client_address[0], "said": format % args})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = _BACKLOG

    def __init__(
        self,
        address: Address,
        pages: Mapping[str, Callable[[], Answer]],
        meanwhile: Callable[[], None],
    ) -> None:
        self.pages = pages
        self._meanwhile = meanwhile
        self.address_family, where = _resolved(address)
        super().__init__(where, _Handler)

    def service_actions(self) -> None:
        """What the library calls a few times a second, whether anybody asks or not."""
        self._meanwhile()

    def server_bind(self) -> None:
        """Bind. WHY not the library's own way: it looks the name of this machine up in the DNS."""
        if self.allow_reuse_address:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        host, self.server_port = self.socket.getsockname()[:2]
        self.server_name = str(host)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """What a connection ended with. WHY only debug: most often the other side went away."""
        log.debug("http_connection_failed", exc_info=sys.exc_info()[1])


def _resolved(address: Address) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    try:
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except UnicodeError as error:
        raise OSError(errno.EINVAL, f"{address.host} is no name of a host") from error
    family, _, _, _, where = found[0]
    return family, where


class Served:
    """The server while it runs. `address` is where, with the port that was chosen for port 0."""

    def __init__(self, server: _Server, readings: Readings) -> None:
        self.address = Address(server.server_name, server.server_port)
        self._server = server
        self._readings = readings
        self._thread = threading.Thread(
            target=server.serve_forever, args=(_POLL_S,), name="http", daemon=True
        )
        self._thread.start()
        self._open = True

    def close(self) -> None:
        """Stop serving. Safe to repeat."""
        if not self._open:
            return
        self._open = False
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._readings.close()


def try_address(address: Address) -> None:
    """Raise OSError if nothing could be served there now; takes nothing."""
    family, where = _resolved(address)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(where)


def serve(process: Process) -> Served:
    """Serve the metrics and probes of the process at its address. Raises OSError if it cannot.

    Answers at once, also while the database is down: nothing is read before somebody asks.
    """
    readings = Readings(process)
    exporter = Exporter(readings, process.entries.values(), process.policy.windows)
    pages = _pages(process, readings, exporter)
    server = _Server(process.settings.http_address, pages, partial(_notice, process))
    return Served(server, readings)
