"""Where everything that a command raises ends: in one clear line each, and an exit code.

0 done, 1 something failed, 2 wrong usage or configuration. Never a traceback, except for an
unexpected error at log level debug.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import click

DONE: Final = 0
FAILED: Final = 1
REFUSED: Final = 2


def say(line: str) -> None:
    """A line for the person, beside the results."""
    click.echo(line, err=True)


def complain(problem: str) -> None:
    """A line about something that went wrong."""
    say(f"sema-maintenance: {problem}")


def exit_code(act: Callable[[], object]) -> int:
    """Run a command; says on standard error what went wrong and gives the exit code for it."""
    with _sigterm_like_ctrl_c():
        # WHY: a name in a ledger may hold what the terminal's encoding cannot show.
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        try:
            result = act()
            sys.stdout.flush()
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else FAILED
        except (KeyboardInterrupt, click.Abort):
            complain("stopped before the end")
            return FAILED
        except BrokenPipeError:
            _forget_output()
            return FAILED
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            return REFUSED
        except click.ClickException as error:
            complain(_usage(error))
            return error.exit_code
        except Exception as error:  # noqa: BLE001 - the one place beside the frame: no traceback
            return _failure(error)
        return result if isinstance(result, int) else DONE


def _usage(error: click.ClickException) -> str:
    message = error.format_message()
    context = error.ctx if isinstance(error, click.UsageError) else None
    says_what_to_do = isinstance(error, click.BadParameter) or "id you mean" in message
    if context is None or says_what_to_do:
        return message
    return f"{message.removesuffix('.')}; see `{context.command_path} --help`"


def _failure(error: Exception) -> int:
    """The one place beside the frame that catches broadly."""
    from config.errors import ConfigError
    from store.errors import InvalidHold, InvalidPolicy, StoreError, StoreUnusable
    from worker.embedded import EmbeddedUnavailable

    match error:
        case ConfigError():
            for problem in error.problems:
                complain(problem)
            return REFUSED
        case EmbeddedUnavailable() | StoreUnusable() | InvalidPolicy() | InvalidHold():
            complain(str(error))
            return REFUSED
        case StoreError():
            complain(str(error))
        case OSError():
            where = f"{error.filename}: " if error.filename else ""
            complain(f"{where}{error.strerror or type(error).__name__}")
        case _:
            if _is_debugging():
                traceback.print_exception(error)
            complain(
                f"an unexpected {type(error).__name__}; set MAINT_LOG_LEVEL=debug to see where"
            )
    return FAILED


def _is_debugging() -> bool:
    from config.errors import ConfigError
    from config.settings import load_settings

    with suppress(ConfigError):
        return load_settings().log_level == "debug"
    return False


def _forget_output() -> None:
    """Nobody reads what is still in the buffer; without this its flush at exit would complain."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@contextmanager
def _sigterm_like_ctrl_c() -> Iterator[None]:
    """Let SIGTERM unwind what is open, an embedded database above all, as SIGINT does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
