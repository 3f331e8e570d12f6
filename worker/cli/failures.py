"""Where everything that a command raises ends: in one clear line each, and an exit code.

0 done, 1 something failed, 2 wrong usage or configuration, 130 ended by Ctrl-C. Never a traceback,
except for an unexpected error at log level debug.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from types import FrameType

DONE: Final = 0
FAILED: Final = 1
REFUSED: Final = 2
# What a shell makes of a command that Ctrl-C ended.
INTERRUPTED: Final = 128 + signal.SIGINT

# WHY of the process: a signal's handler has nobody to tell it to.
_ctrl_c: Final = threading.Event()


def note_ctrl_c() -> None:
    """Ctrl-C was heard, and what goes on is only brought to an orderly end."""
    _ctrl_c.set()


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which unwinds as Ctrl-C does."""


class Stopped(BaseException):
    """A command that Ctrl-C or SIGTERM ended. WHY another: of those click says something itself."""


# While set, the terminal's last line shows how far something has come.
progress_shown: Final = threading.Event()
CLEAR_LINE: Final = "\r\x1b[K"


def say(line: str) -> None:
    """A line for the person, beside the results."""
    click.echo(f"{CLEAR_LINE if progress_shown.is_set() else ''}{line}", err=True)


def complain(problem: str) -> None:
    """A line about something that went wrong."""
    say(f"sema-maintenance: {problem}")


def exit_code(act: Callable[[], object]) -> int:
    """Run a command; says on standard error what went wrong and gives the exit code for it."""
    _ctrl_c.clear()
    _make_streams_safe()
    with _sigterm_like_ctrl_c():
        try:
            result = act()
            sys.stdout.flush()
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else FAILED
        except (KeyboardInterrupt, Stopped, click.Abort) as error:
            if sys.stderr.isatty():
                # WHY: the terminal has put ^C, or an unanswered question, into this line.
                say("")
            complain("stopped before the end")
            return _code_of_stop(error)
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
        code = result if isinstance(result, int) else DONE
        return INTERRUPTED if code == FAILED and _ctrl_c.is_set() else code


def _code_of_stop(error: BaseException) -> int:
    """A question that nobody is there to answer, and SIGTERM, are no Ctrl-C."""
    causes = (error, error.__context__)
    return FAILED if any(isinstance(e, _Terminated | EOFError) for e in causes) else INTERRUPTED


def _make_streams_safe() -> None:
    """Let nothing that is to be shown end a command by where it is shown."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # WHY: whoever closed it does not want to see it.
            nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - to the end
            setattr(sys, name, nowhere)
        elif hasattr(stream, "reconfigure"):
            # WHY: a name in a ledger may hold what the terminal's encoding cannot show.
            stream.reconfigure(errors="backslashreplace")


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

    def terminate(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a handler's
        raise _Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
