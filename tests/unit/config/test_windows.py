"""When a job may work: the texts of the policy file, and the times that they stand for."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import ConfigError, PolicyError
from config.policy import parse_policy
from config.windows import parse_windows

MONDAY = datetime(2026, 11, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]


def at(day: int, hour: int, minute: int = 0) -> datetime:
    """A time of that week, day 0 being Monday."""
    return MONDAY + timedelta(days=day, hours=hour, minutes=minute)


@pytest.mark.parametrize(
    ("texts", "now", "closes_in", "opens_in"),
    [
        (["22:00-06:00"], at(0, 22), 8 * HOUR, 0 * HOUR),
        (["22:00-06:00"], at(1, 5, 30), HOUR / 2, 0 * HOUR),
        (["22:00-06:00"], at(1, 6), None, 16 * HOUR),
        (["22:00-06:00"], at(6, 23), 7 * HOUR, 0 * HOUR),
        (["Mon-Fri 22:00-06:00"], at(5, 5), HOUR, 0 * HOUR),
        (["Mon-Fri 22:00-06:00"], at(5, 22), None, 48 * HOUR),
        (["Sat,Sun 00:00-24:00"], at(5, 0), 48 * HOUR, 0 * HOUR),
        (["Fri-Mon 00:00-24:00"], at(6, 12), 36 * HOUR, 0 * HOUR),
        (["sun 23:00-01:00", "mon 00:30-02:00"], at(6, 23, 30), 2.5 * HOUR, 0 * HOUR),
        (["12:00-13:00", "14:00-15:00"], at(2, 13), None, HOUR),
    ],
)
def test_when_it_is_open(
    texts: list[str], now: datetime, closes_in: timedelta | None, opens_in: timedelta
) -> None:
    windows = parse_windows(texts)
    assert windows.closes_in(now) == closes_in
    assert windows.opens_in(now) == opens_in


def test_all_of_the_week_never_closes() -> None:
    """Some time of a week or more, at any moment."""
    closes_in = parse_windows(["00:00-24:00"]).closes_in(at(6, 23))
    assert closes_in is not None
    assert closes_in >= timedelta(weeks=1)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(DAYS),
            *[st.integers(0, 47)] * 2,
        ).filter(lambda each: each[1] != each[2]),
        min_size=1,
        max_size=5,
    ),
    st.integers(0, 14 * 48),
)
def test_it_is_open_exactly_within_one_of_its_texts(
    drawn: list[tuple[str, int, int]], half_hours: int
) -> None:
    """Judged half hour by half hour, as a person would with a calendar."""
    open_halves: set[int] = set()
    for day, begins, ends in drawn:
        first = DAYS.index(day) * 48 + begins
        length = (ends - begins) % 48
        open_halves |= {(first + step) % (7 * 48) for step in range(length)}
    windows = parse_windows(
        f"{day} {b // 2:02}:{b % 2 * 30:02}-{e // 2:02}:{e % 2 * 30:02}" for day, b, e in drawn
    )
    now = MONDAY + half_hours * HOUR / 2

    closes_in, opens_in = windows.closes_in(now), windows.opens_in(now)

    here = half_hours % (7 * 48)
    assert (closes_in is not None) == (here in open_halves)
    waits = next(n for n in range(7 * 48) if (here + n) % (7 * 48) in open_halves)
    assert opens_in == waits * HOUR / 2
    if closes_in is not None and len(open_halves) < 7 * 48:
        lasts = next(n for n in range(7 * 48) if (here + n) % (7 * 48) not in open_halves)
        assert closes_in == lasts * HOUR / 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a maintenance window"),
        ("22-06", "is not a maintenance window"),
        ("22:00-06:00 Mon", "is not a maintenance window"),
        ("25:00-06:00", "names a time that no day has"),
        ("22:60-23:00", "names a time that no day has"),
        ("24:00-06:00", "names a time that no day has"),
        ("06:00-24:30", "names a time that no day has"),
        ("06:00-06:00", "ends when it begins"),
        ("Moon 06:00-07:00", "names a day that is none"),
        ("Mon- 06:00-07:00", "names a day that is none"),
        ("Mon, 06:00-07:00", "names a day that is none"),
    ],
)
def test_what_is_no_window_is_refused_in_a_sentence(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_windows([text])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('reap = "22:00"', 'policy.toml: [windows] reap = "22:00" is not a maintenance window; '),
        ("reap = 22", "policy.toml: [windows] reap = 22 is not a list of texts; "),
        ("reap = []", "policy.toml: [windows] reap = […] is not a list of texts; "),
        ('reep = "22:00-06:00"', 'did you mean "reap"?'),
    ],
)
def test_policy_file_says_where_it_is_wrong(line: str, says: str) -> None:
    with pytest.raises(PolicyError) as raised:
        parse_policy(f"[windows]\n{line}\n", "policy.toml")
    assert says in str(raised.value)


def test_policy_file_sets_them_by_job() -> None:
    policy = parse_policy('[windows]\nreap = ["22:00-06:00", "Sun 00:00-24:00"]\n', "policy.toml")
    assert [*policy.windows] == ["reap"]
    assert policy.windows["reap"].said == ("22:00-06:00", "Sun 00:00-24:00")
