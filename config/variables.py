"""How the text of one variable becomes a value, as validators of the settings' fields.

Each raises ValueError with the end of a sentence that begins with the variable's name: what is
wrong, and after a semicolon what to write. Only addresses that hold passwords are not quoted.
A value that is no text, as a caller in Python gives it, is held to the same limits.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from config.addresses import (
    Address,
    database_url_problem,
    parse_address,
    release_url_problem,
)
from config.brokers import broker_url_problem, with_small_schemes
from config.durations import format_duration, parse_duration
from config.errors import ConfigError, shown

# WHY 63: Postgres cuts a longer name without a word, and would look elsewhere.
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number within limits that are both allowed."""

    lowest: int
    highest: int

    def __call__(self, value: object) -> int:
        """The number that the text writes in digits."""
        number = value
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value):
            number = int(value)
        if type(number) is int and self.lowest <= number <= self.highest:
            return number
        raise ValueError(
            f"= {shown(value)} is not a whole number from {self.lowest} to {self.highest}; "
            "write one in digits"
        )

    def __str__(self) -> str:
        return f"{self.lowest} to {self.highest}"


@dataclass(frozen=True, slots=True)
class Span:
    """A duration within limits that are both allowed."""

    shortest: timedelta
    longest: timedelta

    def __call__(self, value: object) -> timedelta | None:
        """The span that the text writes with units; None where there may be none."""
        if value is None:
            return None
        try:
            span = parse_duration(value) if isinstance(value, str) else value
        except ConfigError as error:
            raise ValueError(f"= {str(error).removesuffix('.')}") from error
        if isinstance(span, timedelta) and self.shortest <= span <= self.longest:
            return span
        raise ValueError(
            f"= {shown(value)} is not a duration from {self}; write one within these limits"
        )

    def __str__(self) -> str:
        return f"{format_duration(self.shortest)} to {format_duration(self.longest)}"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words, in capitals or not."""

    words: tuple[str, ...]

    def __call__(self, value: object) -> str:
        """The word in small letters."""
        if isinstance(value, str) and value.lower() in self.words:
            return value.lower()
        raise ValueError(f"= {shown(value)} is not one of {self}; write one of these")

    def __str__(self) -> str:
        return ", ".join(self.words)


def read_database_url(value: object) -> SecretStr | None:
    """A Postgres URL or libpq keywords."""
    if value is None:
        return None
    secret = _secret(value)
    problem = database_url_problem(secret.get_secret_value())
    if problem is not None:
        raise ValueError(problem)
    return secret


def read_broker_url(value: object) -> SecretStr:
    """A URL of one of the brokers that the worker is tested with."""
    secret = _secret(value)
    problem = broker_url_problem(secret.get_secret_value())
    if problem is not None:
        raise ValueError(problem)
    return SecretStr(with_small_schemes(secret.get_secret_value()))


def read_release_url(value: object) -> str | None:
    """A URL with a place for a scope and one for a session. WHY not quoted: it may hold a key."""
    if value is None:
        return None
    problem = release_url_problem(str(value))
    if problem is not None:
        raise ValueError(problem)
    return str(value)


def read_identifier(value: object) -> str:
    """A name in Postgres that is the same with and without quotes, but for capitals."""
    if isinstance(value, str) and _IDENTIFIER.fullmatch(value):
        return value
    raise ValueError(
        f"= {shown(value)} is not a plain name; write 1 to 63 letters, digits and underscores, "
        "with no digit first"
    )


def read_path(value: object) -> Path | None:
    """An absolute path; a relative one is taken from the working directory, `~` from the home."""
    if value is None:
        return None
    try:
        return Path(str(value)).expanduser().absolute()
    except RuntimeError as error:
        raise ValueError(
            f"= {shown(value)} begins with a home folder that is not known; write it in full"
        ) from error


def read_address(value: object) -> Address:
    """A host and a port."""
    if isinstance(value, Address):
        return value
    try:
        return parse_address(str(value))
    except ConfigError as error:
        raise ValueError(f"= {str(error).removesuffix('.')}") from error


def _secret(value: object) -> SecretStr:
    return value if isinstance(value, SecretStr) else SecretStr(str(value))
