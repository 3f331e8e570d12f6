"""Counts and lengths of time as a person reads them, everywhere in the same way."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

_SECOND: Final = timedelta(seconds=1)


def counted(count: int, one: str, many: str | None = None) -> str:
    """So many of something, with thousands apart."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def span(length: timedelta) -> str:
    """A length of time for a person, in one unit."""
    return _in_one_unit(length / _SECOND)


def span_of_ms(milliseconds: int) -> str:
    """The same of a number from the ledger, which may be more than a timedelta can hold."""
    return _in_one_unit(milliseconds / 1000)


def _in_one_unit(seconds: float) -> str:
    seconds = max(0.0, seconds)
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size * 2:
            return f"{seconds / size:.0f} {unit}"
    if seconds >= 10:
        return f"{seconds:.0f} s"
    return f"{seconds:.2g} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
