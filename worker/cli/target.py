"""Which database a command works on, and who asks: decided here for every command but `run`."""

from __future__ import annotations

import getpass
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from worker.cli.failures import note_ctrl_c, say

if TYPE_CHECKING:
    from types import FrameType

    from config.policy import Policy
    from config.settings import Settings
    from store.needs import Needs
    from worker.context import Process

T = TypeVar("T")


def no_policy(_: Settings) -> Policy:
    """For commands that no policy decides."""
    from config.policy import Policy

    return Policy.empty()


@contextmanager
def ledger(
    needs: Needs | Callable[[Settings], Needs],
    policy_for: Callable[[Settings], Policy] = no_policy,
) -> Iterator[Process]:
    """The process on the database that the environment names, looked over for what is needed.

    Says on standard error which database it is. Raises ConfigError, EmbeddedUnavailable and
    StoreUnusable before anything was changed.
    """
    with named_database(policy_for) as process:
        look_over(process, needs(process.settings) if callable(needs) else needs)
        yield process


@contextmanager
def named_database(
    policy_for: Callable[[Settings], Policy] = no_policy,
) -> Iterator[Process]:
    """As `ledger`, whatever is in the database, and whether it is there or not."""
    from pydantic import SecretStr

    from config.settings import load_settings
    from worker.context import Process
    from worker.embedded import embedded_postgres
    from worker.logs import configure

    settings = load_settings()
    configure(settings.log_level, settings.log_format)
    policy = policy_for(settings)
    with ExitStack() as stack:
        embedded = ""
        if settings.database_url is None:
            folder = settings.data_dir / "postgres"
            url = stack.enter_context(embedded_postgres(folder, create=False))
            settings = settings.model_copy(update={"database_url": SecretStr(url)})
            embedded = f" (embedded, in {folder})"
        process = Process(settings, policy)
        stack.callback(process.close)
        say(f"database: {process.database.describe()}{embedded}")
        yield process


def look_over(process: Process, needs: Needs) -> None:
    """Raise ConfigError or StoreUnusable unless the database is there and has what is needed."""
    from config.errors import ConfigError
    from store import preflight
    from store.errors import StoreUnavailable

    try:
        preflight.check(process.database, needs)
    except StoreUnavailable as error:
        # WHY another error: before anything was begun, an address is wrong until proven right.
        raise ConfigError(f"{error}; check MAINT_DATABASE_URL") from error


def requested_by() -> str:
    """Who runs this command, as user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}".encode(errors="replace").decode()


@contextmanager
def finishing_the_batch(process: Process) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM end the job after the batch in hand, the second at once."""

    def stop(number: int, frame: FrameType | None) -> None:
        if process.stopping.is_set():
            signal.default_int_handler(number, frame)
        process.stopping.set()
        if number == signal.SIGINT:
            note_ctrl_c()
        # WHY not through a stream: this may interrupt a write to one.
        os.write(2, b"stopping after the batch in hand; once more stops at once\n")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class BetweenBatches:
    """Lets Ctrl-C and SIGTERM end what stores batch by batch only where it is known how far it is.

    While it waits for more to store they end it at once, else when the batch in hand is counted; a
    second one ends it at once in any case.
    """

    def __init__(self) -> None:
        self._waits = False
        self._heard: tuple[int, FrameType | None] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> BetweenBatches:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._waits or self._heard is not None:
            self._before[number](number, frame)
        self._heard = number, frame

    def waiting(self, more: Iterator[T]) -> Iterator[T]:
        """The same, each waited for in such a way that it may be ended meanwhile."""
        while True:
            self._waits = True
            self.counted()
            try:
                each = next(more, None)
            finally:
                self._waits = False
            if each is None:
                return
            yield each

    def counted(self) -> None:
        """All that is stored is counted: a good moment to end, if that was asked for."""
        if self._heard is not None:
            self._before[self._heard[0]](*self._heard)
