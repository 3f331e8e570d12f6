"""What is raised when an operator wrote something wrong, and how such a mistake is worded.

    ConfigError
    ├── PolicyError      the policy file
    └── SettingsError    the environment

Every problem is one sentence that names the place, the value and the remedy, and never a secret.
"""

import difflib
import json
import re
from collections.abc import Iterable

_SHOWN_CHARS_MAX = 80
# WHY mask what is not declared a secret: an address put into the wrong variable still holds one.
_CREDENTIALS = re.compile(r"(?<=://)\S*@|(?<=password=)\S+", re.IGNORECASE)


class ConfigError(Exception):
    """Something configured is wrong. Never retry: a person has to correct it first."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems: tuple[str, ...] = problems

    def __str__(self) -> str:
        return "\n".join(self.problems)


class PolicyError(ConfigError):
    """The policy file cannot be used; nothing of it is."""


class SettingsError(ConfigError):
    """A variable of the environment cannot be used; no setting is."""


def shown(value: object) -> str:
    """A value of a variable or of a TOML file for a message: on one line, cut, no passwords."""
    if isinstance(value, str):
        masked = _CREDENTIALS.sub("***", value)
        cut = masked if len(masked) <= _SHOWN_CHARS_MAX else f"{masked[:_SHOWN_CHARS_MAX]}…"
        # WHY replace: the environment may hold bytes that no terminal's encoding can print.
        printable = cut.encode("utf-8", "backslashreplace").decode()
        return json.dumps(printable, ensure_ascii=False)
    if isinstance(value, int) and abs(value) >= 10**_SHOWN_CHARS_MAX:
        return "a number of very many digits"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return "[…]" if isinstance(value, list) else "{…}"
    return str(value)


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """The known name that an unknown one most resembles; None when none comes near."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.5)
    return by_folded[close[0]] if close else None
