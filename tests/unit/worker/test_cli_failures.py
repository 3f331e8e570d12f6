"""Whatever a command raises ends as one line and an exit code that says of which kind it was."""

import errno
import signal

import click
import pytest

from config.errors import PolicyError, SettingsError
from store.errors import InvalidPolicy, StoreError, StoreUnavailable, StoreUnusable, TimedOut
from worker.cli.failures import exit_code, note_ctrl_c
from worker.embedded import EmbeddedUnavailable


def raising(error: BaseException) -> int:
    def act() -> None:
        raise error

    return exit_code(act)


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (SettingsError("one", "two"), 2, ["one", "two"]),
        (PolicyError("policy.toml: three"), 2, ["policy.toml: three"]),
        (EmbeddedUnavailable("no database"), 2, ["no database"]),
        (StoreUnusable("too old"), 2, ["too old"]),
        (
            InvalidPolicy("keep", -1, "must be 0 or more"),
            2,
            ["keep = -1 must be 0 or more"],
        ),
        (StoreUnavailable("gone"), 1, ["gone"]),
        (TimedOut("held"), 1, ["held"]),
        (StoreError("refused"), 1, ["refused"]),
        (click.UsageError("wrong."), 2, ["wrong."]),
        (OSError(errno.ENOSPC, "No space left", "/dev/full"), 1, ["/dev/full: No space left"]),
        (KeyboardInterrupt(), 130, ["stopped before the end"]),
        (click.Abort(), 130, ["stopped before the end"]),
        (BrokenPipeError(), 1, []),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_each_error_is_its_line_and_its_code(
    error: BaseException, code: int, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(error) == code

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "".join(f"sema-maintenance: {line}\n" for line in lines)


def test_an_unexpected_error_says_how_to_see_more_and_shows_no_values(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MAINT_LOG_LEVEL", raising=False)

    assert raising(ZeroDivisionError("password=s3cret")) == 1

    assert capsys.readouterr().err == (
        "sema-maintenance: an unexpected ZeroDivisionError; "
        "set MAINT_LOG_LEVEL=debug to see where\n"
    )


def test_at_log_level_debug_it_shows_where(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAINT_LOG_LEVEL", "debug")

    assert raising(ZeroDivisionError("by nothing")) == 1

    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last):")
    assert said.endswith(
        "an unexpected ZeroDivisionError; set MAINT_LOG_LEVEL=debug to see where\n"
    )


def test_a_command_without_a_result_is_done() -> None:
    assert exit_code(lambda: None) == 0
    assert exit_code(lambda: 1) == 1


def test_a_question_that_nobody_answers_is_no_ctrl_c() -> None:
    """At the end of its input, where click asks in vain."""

    def ask() -> None:
        try:
            raise EOFError
        except EOFError:
            raise click.Abort from None

    assert exit_code(ask) == 1


def test_a_job_that_ctrl_c_ended_early_is_told_from_one_that_failed() -> None:
    """It brings its batch to an end and returns; what it returns of itself is 1."""

    def heard(code: int) -> int:
        note_ctrl_c()
        return code

    assert [exit_code(lambda: heard(1)), exit_code(lambda: heard(0))] == [130, 0]
    assert exit_code(lambda: 1) == 1


def test_sigterm_unwinds_as_ctrl_c_does(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)

    assert exit_code(lambda: signal.raise_signal(signal.SIGTERM)) == 1

    assert capsys.readouterr().err == "sema-maintenance: stopped before the end\n"
    assert signal.getsignal(signal.SIGTERM) is before
