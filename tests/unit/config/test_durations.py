from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.durations import duration_ms, format_duration, parse_duration
from config.errors import ConfigError

MICROSECOND = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("45s", timedelta(seconds=45)),
        ("15m", timedelta(minutes=15)),
        ("12h", timedelta(hours=12)),
        ("30d", timedelta(days=30)),
        ("2w", timedelta(weeks=2)),
        ("1h30m", timedelta(minutes=90)),
        ("30m1h", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        ("1m500ms", timedelta(seconds=60, milliseconds=500)),
        ("0.001ms", MICROSECOND),
        ("0.1s0.2h", timedelta(seconds=720, milliseconds=100)),
        ("0s", timedelta(0)),
        ("007d", timedelta(days=7)),
        ("999999999d", timedelta(days=999_999_999)),
    ],
)
def test_a_number_with_a_unit_is_exact(text: str, span: timedelta) -> None:
    assert parse_duration(text) == span


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", '"" is empty'),
        ("  ", '"  " is empty'),
        ("30", '"30" has no unit'),
        ("1.5", '"1.5" has no unit'),
        ("-5s", '"-5s" is negative'),
        ("-5", '"-5" is negative'),
        ("nan", '"nan" is not a finite length of time'),
        ("inf", '"inf" is not a finite length of time'),
        ("-Infinity", '"-Infinity" is not a finite length of time'),
        ("nans", '"nans" is not a finite length of time'),
        ("1h1h", '"1h1h" names the unit h twice'),
        ("1m5s2m", '"1m5s2m" names the unit m twice'),
        ("30D", '"30D" is not a duration'),
        ("5 m", '"5 m" is not a duration'),
        (" 5m", '" 5m" is not a duration'),
        ("5m\n", '"5m\\n" is not a duration'),
        ("1e3s", '"1e3s" is not a duration'),
        ("+5s", '"+5s" is not a duration'),
        ("1h-30m", '"1h-30m" is not a duration'),
        ("1.5.5h", '"1.5.5h" is not a duration'),
        ("off", '"off" is not a duration'),
        ("5y", '"5y" is not a duration'),
        ("٣s", '"٣s" is not a duration'),
        ("0.0001ms", '"0.0001ms" is finer than a microsecond'),
        ("1000000000d", '"1000000000d" is longer than 999999999 days'),
        ("999999999d24h", '"999999999d24h" is longer than 999999999 days'),
        ("9" * 60 + "w", "is longer than 999999999 days"),
        ("9" * 5000 + "s", "is longer than 64 characters"),
    ],
)
def test_what_is_no_duration_is_refused_with_an_example(text: str, why: str) -> None:
    """One line names the value, the reason and what to write instead."""
    with pytest.raises(ConfigError) as refused:
        parse_duration(text)

    message = str(refused.value)
    assert why in message
    assert 'such as "45s", "1h30m" or "30d"' in message
    assert "\n" not in message
    assert len(message) < 250


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(days=30), "30d"),
        (timedelta(days=14), "2w"),
        (timedelta(hours=24), "1d"),
        (timedelta(seconds=60), "1m"),
        (timedelta(seconds=90), "90s"),
        (timedelta(minutes=90), "90m"),
        (timedelta(milliseconds=1500), "1.5s"),
        (timedelta(milliseconds=250), "250ms"),
        (timedelta(days=1, minutes=1), "1d1m"),
        (timedelta(hours=1, microseconds=500), "1h0.5ms"),
        (MICROSECOND, "0.001ms"),
        (timedelta(seconds=-90), "-90s"),
    ],
)
def test_a_span_is_written_in_few_characters(span: timedelta, text: str) -> None:
    assert format_duration(span) == text


@given(st.timedeltas(min_value=timedelta(0)))
def test_what_is_written_is_read_back_exactly(span: timedelta) -> None:
    assert parse_duration(format_duration(span)) == span


@given(
    st.integers(0, 10_000),
    st.sampled_from([1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000]),
    st.integers(-2, 2),
)
def test_spans_near_whole_units_are_read_back_exactly(count: int, unit: int, more: int) -> None:
    """Where one unit gives way to the next is where digits get lost."""
    span = max(0, count * unit + more) * MICROSECOND

    assert parse_duration(format_duration(span)) == span


@pytest.mark.parametrize(
    ("span", "milliseconds"),
    [
        (timedelta(0), 0),
        (timedelta(minutes=15), 900_000),
        (timedelta(microseconds=1500), 1.5),
        (timedelta.max - timedelta(microseconds=999), 86_399_999_999_999_999),
        (timedelta(seconds=-1), -1000),
    ],
)
def test_milliseconds_are_whole_where_the_span_is(span: timedelta, milliseconds: float) -> None:
    """A large whole number would lose its last digits on the way through a float."""
    counted = duration_ms(span)

    assert counted == milliseconds
    assert type(counted) is type(milliseconds)


@given(st.integers(0, 2**53))
def test_every_whole_millisecond_survives(count: int) -> None:
    span = timedelta(milliseconds=0) + count * timedelta(milliseconds=1)

    assert duration_ms(span) == count
