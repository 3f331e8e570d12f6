"""The numbers of a retention policy: refused where malformed, and the cutoffs they give."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from store.errors import InvalidPolicy
from store.records import BIGINT_MAX, BIGINT_MIN

Milliseconds = int | float


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """What `reap` may do in a scope. None: that arm is not applied; 0 is a value.

    Ages in milliseconds, fractions allowed; `keep` counts rows.
    """

    max_age_ms: Milliseconds | None = None
    keep: int | float | None = None
    stale_running_max_age_ms: Milliseconds | None = None


def assert_retention_policy(policy: RetentionPolicy) -> None:
    """Raise InvalidPolicy, naming field and value, unless every field can be applied."""
    assert_age("max_age_ms", policy.max_age_ms)
    assert_keep("keep", policy.keep)
    assert_age("stale_running_max_age_ms", policy.stale_running_max_age_ms)


def assert_age(field: str, value: object) -> None:
    """Raise InvalidPolicy unless the value is None or a finite, non-negative number."""
    if value is None:
        return
    _assert_number(field, value, "must be a finite number of milliseconds, 0 or more")


def assert_keep(field: str, value: object) -> None:
    """Raise InvalidPolicy unless the value is None or a finite, non-negative, whole number."""
    if value is None:
        return
    problem = "must be a whole number of rows, 0 or more"
    if _assert_number(field, value, problem) % 1:
        raise InvalidPolicy(field, value, problem)


def _assert_number(field: str, value: object, problem: str) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        raise InvalidPolicy(field, value, problem)
    # WHY the type first: an int beyond the floats is finite, but isfinite cannot say so.
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidPolicy(field, value, problem)
    if value < 0:
        raise InvalidPolicy(field, value, problem)
    return Fraction(value)


def before(now: int, age_ms: Milliseconds) -> int:
    """The first whole millisecond that is not strictly earlier than `now - age_ms`.

    A time `t` is older than the age exactly if `t < before(now, age_ms)`. Beyond 64 bits it is the
    least bigint, which no time is earlier than.
    """
    return max(math.ceil(Fraction(now) - Fraction(age_ms)), BIGINT_MIN)


def kept(keep: int | float) -> int:
    """The number of rows to keep, as a bigint."""
    return min(int(keep), BIGINT_MAX - 1)
