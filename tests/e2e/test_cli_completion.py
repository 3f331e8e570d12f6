"""What a shell is offered while somebody types a command."""

import os
import subprocess
import sys

import pytest

from tests.e2e.processes import CHECKOUT


def offered(*words: str) -> list[str]:
    """What bash would be offered for the last of these words."""
    environ = {
        "COMP_WORDS": " ".join(("sema-maintenance", *words)),
        "COMP_CWORD": str(len(words)),
        "_SEMA_MAINTENANCE_COMPLETE": "bash_complete",
    }
    done = subprocess.run(
        [sys.executable, "-m", "worker"],
        cwd=CHECKOUT,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.partition(",")[2] for line in done.stdout.split()]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("hol",), ["holds"]),
        (("holds", "p"), ["place"]),
        (("reap", "--ma"), ["--max-age"]),
        (("reap", "--override", "br"), ["breakers"]),
        (("reconcile-parked", "--override", "br"), []),
        (("pause", "re"), ["reap", "reconcile-parked", "release-sessions"]),
        (("resume", "a"), ["all"]),
        (("plan", "re"), ["reap", "reconcile-parked", "release-sessions"]),
        (("apply", "--override", "br"), ["breakers"]),
        (("history", "--job", "audit"), ["audit-memory"]),
    ],
)
def test_bash_is_offered_what_fits(words: tuple[str, ...], expected: list[str]) -> None:
    assert offered(*words) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "worker"],
        cwd=CHECKOUT,
        env=os.environ | {"_SEMA_MAINTENANCE_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"_SEMA_MAINTENANCE_COMPLETE={shell}_complete" in done.stdout
