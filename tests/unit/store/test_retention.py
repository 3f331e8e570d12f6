"""The numbers of a policy: what is refused, and which millisecond a cutoff falls on."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import InvalidPolicy
from store.records import BIGINT_MAX, BIGINT_MIN
from store.retention import (
    RetentionPolicy,
    assert_age,
    assert_keep,
    assert_retention_policy,
    before,
    kept,
)

NO_NUMBER: list[Any] = [
    math.nan, math.inf, -math.inf, -1, -0.25, -5e-324, -(10**400), True, False, "", "5", "30d",
    b"5", Decimal(5), 5j, [], [5], (5,), {},
]  # fmt: skip
WHOLE: list[float] = [0, 1, 5, 5.0, -0.0, 2**53, 2**63, 10**400, 1e300, 1.7976931348623157e308]


def brief(value: object) -> str:
    """A value as a test's name can hold it."""
    return repr(value)[:30]


@pytest.mark.parametrize("value", NO_NUMBER, ids=brief)
def test_what_is_no_age_is_refused_by_name_and_value(value: Any) -> None:
    with pytest.raises(InvalidPolicy) as refused:
        assert_age("some_age_ms", value)

    assert refused.value.field == "some_age_ms"
    assert refused.value.value is value
    assert f"some_age_ms = {value!r} " in str(refused.value)
    assert "milliseconds" in str(refused.value)


@pytest.mark.parametrize("value", [*NO_NUMBER, 5.5, 0.1, 1e-300, 4.999999999999999], ids=brief)
def test_what_is_no_count_is_refused_by_name_and_value(value: Any) -> None:
    with pytest.raises(InvalidPolicy) as refused:
        assert_keep("keep", value)

    assert (refused.value.field, refused.value.value) == ("keep", value) or value != value
    assert f"keep = {value!r} " in str(refused.value)
    assert "whole number" in str(refused.value)


@pytest.mark.parametrize("value", [*WHOLE, 0.5, 1e-300, 60_000.25], ids=brief)
def test_every_finite_age_is_accepted(value: float) -> None:
    """Fractions count, 0 is a value, and no size is too much."""
    assert_age("some_age_ms", value)
    assert_retention_policy(RetentionPolicy(max_age_ms=value, stale_running_max_age_ms=value))


@pytest.mark.parametrize("value", WHOLE, ids=brief)
def test_every_whole_count_is_accepted(value: float) -> None:
    assert_keep("keep", value)
    assert_retention_policy(RetentionPolicy(keep=value))


def test_an_absent_field_is_no_arm() -> None:
    assert_age("some_age_ms", None)
    assert_keep("keep", None)
    assert_retention_policy(RetentionPolicy())


@pytest.mark.parametrize("field", ["max_age_ms", "keep", "stale_running_max_age_ms"])
def test_each_field_of_a_policy_is_validated(field: str) -> None:
    """However right the others are."""
    right: dict[str, Any] = {"max_age_ms": 1, "keep": 1, "stale_running_max_age_ms": 1}

    with pytest.raises(InvalidPolicy, match=rf"^{field} = -1 "):
        assert_retention_policy(RetentionPolicy(**right | {field: -1}))


def test_a_number_too_long_to_be_written_down_is_refused_too() -> None:
    """Python does not spell numbers of so many digits; the message does without."""
    with pytest.raises(InvalidPolicy, match="max_age_ms"):
        assert_retention_policy(RetentionPolicy(max_age_ms=-(10**5000)))


@pytest.mark.parametrize(
    ("age", "cutoff"),
    [
        (0, 1000), (1, 999), (0.5, 1000), (0.999, 1000), (1.0, 999), (1.001, 999), (999.5, 1),
        (1000, 0), (1000.5, 0), (1001, -1),
    ],
)  # fmt: skip
def test_the_cutoff_of_an_age(age: float, cutoff: int) -> None:
    """The first millisecond that is not older than the age."""
    assert before(1000, age) == cutoff


NOWS = st.integers(-(2**41), 2**43)
AGES = st.integers(0, 2**70) | st.floats(0, allow_nan=False, allow_infinity=False)


@given(NOWS, AGES, st.integers(BIGINT_MIN, BIGINT_MAX))
def test_a_time_is_before_the_cutoff_exactly_if_it_is_older(now: int, age: float, at: int) -> None:
    """Strictly, to the last fraction, wherever the time is."""
    assert (at < before(now, age)) == (Fraction(now) - at > Fraction(age))


@given(NOWS, AGES, st.integers(-2, 2))
def test_the_millisecond_at_the_cutoff_decides(now: int, age: float, off: int) -> None:
    """The same close to the limit, where a rounding would show."""
    at = math.floor(Fraction(now) - Fraction(age)) + off
    if BIGINT_MIN <= at <= BIGINT_MAX:
        assert (at < before(now, age)) == (Fraction(now) - at > Fraction(age))


@given(NOWS, st.integers(2**70, 10**400) | st.floats(1e30, allow_infinity=False))
def test_a_cutoff_beyond_64_bits_is_the_earliest_time(now: int, age: float) -> None:
    """Before which there is none."""
    assert before(now, age) == BIGINT_MIN


@pytest.mark.parametrize(("keep", "rows"), [(0, 0), (5, 5), (5.0, 5), (2**53, 2**53)])
def test_a_count_of_rows(keep: float, rows: int) -> None:
    assert kept(keep) == rows


@pytest.mark.parametrize("keep", [2**63 - 1, 2**63, 10**400, 1e300], ids=brief)
def test_a_count_beyond_64_bits_leaves_room_for_one_more(keep: float) -> None:
    """The statement asks for the row after the last one kept."""
    assert kept(keep) + 1 <= BIGINT_MAX
    assert kept(keep) > 10**18
