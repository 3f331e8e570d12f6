"""What a person sees: tables that fit, colours where they are wanted, progress where it helps."""

import io
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta

import pytest

from tests.waiting import wait_until
from worker.cli import show
from worker.cli.failures import say

NOW = datetime.now(UTC)
HEADER = ("STARTED (UTC)", "JOB", "OUTCOME", "ROWS", "SCOPE", "DID")
ROWS = [
    (f"{NOW:%Y-%m-%d %H:%M:%S}", "flip_stale_running", "failed", 1_234_567, "東京" * 30, "x" * 300),
    ("2019-03-04 05:06:07", "reap", "succeeded", 0, "tenant/acme", "e\u0301" * 90),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def __enter__(self) -> "Terminal":
        self._stack = ExitStack()
        # WHY only now: between a test's set-up and its call the standard streams are set anew.
        self._stack.enter_context(redirect_stdout(self))
        self._stack.enter_context(redirect_stderr(self))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """What standard output and standard error show, on a terminal with colours."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


def columns_of(line: str) -> int:
    """How many columns a line takes: two for each of 東京, none for an accent of its own."""
    return len(line) + sum(c in "東京" for c in line) - line.count("\u0301")


@pytest.mark.parametrize("columns", [40, 41, 60, 72, 80, 81, 100, 120, 200, 700])
def test_no_line_of_a_table_is_wider_than_the_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))

    with terminal:
        show.table(HEADER, ROWS)

    said = terminal.getvalue()
    assert max(map(columns_of, said.splitlines())) <= columns
    # What is short is never cut, however narrow the terminal.
    for whole in ("flip_stale_running", "succeeded", "1234567", f"{NOW:%H:%M:%S}"):
        assert whole in said
    assert ("…" in said) == (columns < 700)


def test_a_narrow_terminal_has_a_block_for_each_row(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")

    with terminal:
        show.table(HEADER, ROWS)

    first, second = terminal.getvalue().split("\n\n")
    assert [line.split()[0] for line in first.splitlines()] == [h.split()[0] for h in HEADER]
    assert second.splitlines()[0] == "STARTED (UTC)  2019-03-04 05:06:07"


def test_on_80_columns_times_lose_what_goes_without_saying(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lately = NOW - timedelta(days=40)

    with terminal:
        show.table(HEADER, [*ROWS, (f"{lately:%Y-%m-%d %H:%M:%S}", "reap", "partial", 1, "s", "-")])

    header, today, years_ago, weeks_ago = terminal.getvalue().splitlines()
    assert header.split()[:2] == ["STARTED", "JOB"]
    assert today.startswith(f"{NOW:%H:%M:%S}")
    assert years_ago.startswith("2019-03-04  ")
    assert weeks_ago.startswith(f"{lately:%m-%d %H:%M}  ")


def test_in_a_pipe_nothing_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    show.table(HEADER, ROWS)

    said = capsys.readouterr().out
    assert len(said.splitlines()) == 3
    for cell in (cell for row in ROWS for cell in row):
        assert str(cell) in said


@pytest.mark.parametrize(
    ("variable", "value", "coloured"),
    [
        ("TERM", "xterm", True),
        ("NO_COLOR", "", True),
        ("NO_COLOR", "1", False),
        ("TERM", "dumb", False),
    ],
)
def test_colours_are_for_terminals_whose_person_wants_them(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, coloured: bool
) -> None:
    monkeypatch.setenv(variable, value)

    with terminal:
        show.table(("JOB", "OUTCOME"), [("reap", show.outcome("failed"))])

    assert ("\x1b[31mfailed" in terminal.getvalue()) == coloured
    assert ("\x1b" in terminal.getvalue()) == coloured


def test_a_name_in_the_ledger_has_no_colour_of_its_own(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    with terminal:
        show.table(("SCOPE",), [("\x1b[31mred",)])

    assert "\x1b" not in terminal.getvalue()


def test_a_bar_shows_how_much_of_a_whole_is_done(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line of the terminal, which is empty again in the end."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(show, "_PROGRESS_EVERY_S", 0.001)

    with terminal, show.progress(lambda: "x" * 200, lambda: 0.5):
        wait_until(lambda: "%" in terminal.getvalue(), "a bar")
        say("a line meanwhile")

    drawn = terminal.getvalue().split("\r\x1b[K")
    bars = [line for line in drawn if "%" in line]
    assert bars[0].startswith("[##########..........]  50 %  0 s: xxx")
    assert {len(line) for line in bars} == {59}
    assert "a line meanwhile\n" in drawn
    assert drawn[-1] == ""


def test_a_dumb_terminal_is_spared_progress(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(show, "_PROGRESS_EVERY_S", 0.001)

    with terminal, show.progress(lambda: "far"):
        pass

    assert terminal.getvalue() == ""
