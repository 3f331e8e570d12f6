"""Spans of time as operators write them: a number and a unit, as in "30d" or "1h30m"."""

import re
from datetime import timedelta
from fractions import Fraction

from config.errors import ConfigError, shown

_MICROSECOND = timedelta(microseconds=1)
# From the longest to the shortest, in microseconds: both directions rely on the order.
_UNITS = {
    "w": 604_800_000_000,
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[wdhms])")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
_INFINITE = re.compile(r"[+-]?(?:nan|inf|infinity)(?:ms|[wdhms])?", re.IGNORECASE)
# WHY a limit: exact arithmetic on a text of any length has a cost of any size.
_TEXT_CHARS_MAX = 64
_LONGEST_US = timedelta.max // _MICROSECOND
_REMEDY = 'write a number and a unit (ms, s, m, h, d, w), such as "45s", "1h30m" or "30d"'


def parse_duration(text: str) -> timedelta:
    """The exact span that a text such as "500ms", "1.5h" or "1h30m" stands for.

    Units are ms, s, m (minutes), h, d (24 h) and w (7 d), each at most once. Raises ConfigError,
    also for what a microsecond cannot divide and for what is longer than a timedelta can be (about
    2.7 million years, well inside 64 bits of milliseconds).
    """
    if len(text) > _TEXT_CHARS_MAX:
        raise _refused(text, f"is longer than {_TEXT_CHARS_MAX} characters")
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise _refused(text, _why_unreadable(text))
    units = [unit for _, unit in parts]
    twice = next((unit for unit in _UNITS if units.count(unit) > 1), None)
    if twice is not None:
        raise _refused(text, f"names the unit {twice} twice")
    total_us = sum((Fraction(number) * _UNITS[unit] for number, unit in parts), Fraction(0))
    if total_us.denominator != 1:
        raise _refused(text, "is finer than a microsecond")
    if total_us > _LONGEST_US:
        raise _refused(text, "is longer than 999999999 days")
    return int(total_us) * _MICROSECOND


def format_duration(span: timedelta) -> str:
    """The span in few characters, exactly: `parse_duration` gives the same span back.

    It is one number ("90m", "1.5s") or, where that is shorter, falling units ("1d1m"). A negative
    span, which `parse_duration` refuses, gets a minus.
    """
    total_us = span // _MICROSECOND
    if total_us == 0:
        return "0s"
    if total_us < 0:
        return f"-{format_duration(-span)}"
    # Among texts of one length the first wins: a whole number, and then of the largest unit.
    forms = [form for unit in _UNITS if (form := _one_number(total_us, unit)) is not None]
    forms += [_falling_units(total_us, start) for start in range(len(_UNITS) - 1)]
    return min(forms, key=lambda form: (len(form), "." in form))


def duration_ms(span: timedelta) -> int | float:
    """The span in milliseconds: an int where it is whole, else the nearest float."""
    whole_ms, rest_us = divmod(span // _MICROSECOND, 1_000)
    return whole_ms + rest_us / 1_000 if rest_us else whole_ms


def _one_number(total_us: int, unit: str) -> str | None:
    """The span as one decimal number of the unit; None where it has more than six decimals."""
    whole, rest = divmod(total_us, _UNITS[unit])
    decimals = ""
    while rest and len(decimals) < 6:
        digit, rest = divmod(rest * 10, _UNITS[unit])
        decimals += str(digit)
    if rest:
        return None
    return f"{whole}.{decimals}{unit}" if decimals else f"{whole}{unit}"


def _falling_units(total_us: int, start: int) -> str:
    """The span as whole numbers of falling units; only what is left below 1 s has a fraction."""
    text = ""
    rest = total_us
    for unit, unit_us in list(_UNITS.items())[start:-1]:
        count, rest = divmod(rest, unit_us)
        if count:
            text += f"{count}{unit}"
    # Less than a second is left: six digits show every microsecond of it.
    return f"{text}{rest / 1_000:g}ms" if rest else text


def _why_unreadable(text: str) -> str:
    if not text.strip():
        return "is empty"
    if _INFINITE.fullmatch(text):
        return "is not a finite length of time"
    if text.startswith("-"):
        return "is negative"
    if _NUMBER.fullmatch(text):
        return "has no unit"
    return "is not a duration"


def _refused(text: str, why: str) -> ConfigError:
    return ConfigError(f"{shown(text)} {why}; {_REMEDY}.")
