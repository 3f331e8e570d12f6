"""Maintenance windows: the times of the week at which the schedule may let a job work, in UTC.

A window is "22:00-06:00", or the same after the days on which it begins: "Sat,Sun 00:00-24:00",
"Mon-Fri 22:00-06:00". One that ends before it begins goes on into the next day.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from config.errors import ConfigError, shown
from config.toml_table import TomlTable

_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY: Final = 24 * 60
_WEEK: Final = 7 * _DAY
_TEXT: Final = re.compile(r"(?:(\S+) +)?([0-9]{2}):([0-9]{2})-([0-9]{2}):([0-9]{2})")
_REMEDY: Final = 'write one such as "22:00-06:00" or "Sat,Sun 00:00-24:00", in UTC'
# WHY Monday: minutes of the week are counted from there, as in the order of the days.
_A_MONDAY: Final = datetime(1970, 1, 5, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Windows:
    """The times at which a job may work. `spans`: [from, to) in minutes of the week, in order.

    They neither overlap nor touch. All of the week is one span.
    """

    spans: tuple[tuple[int, int], ...]
    said: tuple[str, ...]

    def closes_in(self, at: datetime) -> timedelta | None:
        """How long the window that `at` lies in stays open; None: none is open.

        A week or longer where the windows never close.
        """
        minute = _minute_of_week(at)
        for begins, ends in self.spans:
            if begins <= minute < ends:
                # WHY: what is open at the end of Sunday may go on at the beginning of Monday.
                first_begins, first_ends = self.spans[0]
                goes_on = ends == _WEEK and first_begins == 0
                return timedelta(minutes=ends - minute + (first_ends if goes_on else 0))
        return None

    def opens_in(self, at: datetime) -> timedelta:
        """How long until a window opens; 0 where one is open."""
        minute = _minute_of_week(at)
        if self.closes_in(at) is not None:
            return timedelta(0)
        waits = ((begins - minute) % _WEEK for begins, _ in self.spans)
        return timedelta(minutes=min(waits))


def _minute_of_week(at: datetime) -> float:
    return (at - _A_MONDAY) / timedelta(minutes=1) % _WEEK


def parse_windows(texts: Iterable[str]) -> Windows:
    """The windows that the texts stand for together. Raises ConfigError for one that is none."""
    said = tuple(texts)
    return Windows(_joined(span for text in said for span in _spans(text)), said)


def read_windows(table: TomlTable, jobs: tuple[str, ...]) -> Mapping[str, Windows]:
    """The windows by job that the table sets; a job that it leaves out may work at any time."""
    table.refuse_unknown_keys(jobs)
    found: dict[str, Windows] = {}
    for job in table.values:
        if job not in jobs:
            continue
        texts = table.texts(job)
        if texts is None:
            continue
        try:
            found[job] = parse_windows(texts)
        except ConfigError as error:
            table.refuse(f"{job} = {str(error).removesuffix('.')}")
    return found


def _spans(text: str) -> list[tuple[int, int]]:
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{shown(text)} is not a maintenance window; {_REMEDY}.")
    days, *numbers = match.groups()
    from_hour, from_minute, to_hour, to_minute = map(int, numbers)
    begins, ends = from_hour * 60 + from_minute, to_hour * 60 + to_minute
    if from_minute > 59 or to_minute > 59 or begins >= _DAY or ends > _DAY:
        raise ConfigError(f"{shown(text)} names a time that no day has; {_REMEDY}.")
    if begins == ends:
        raise ConfigError(
            f"{shown(text)} ends when it begins; for the whole day write 00:00-24:00."
        )
    if ends < begins:
        ends += _DAY
    return [
        (day * _DAY + begins, day * _DAY + ends)
        for day in (range(7) if days is None else _days(days, text))
    ]


def _days(said: str, text: str) -> list[int]:
    found: list[int] = []
    for part in said.lower().split(","):
        first, dash, last = part.partition("-")
        if first not in _DAYS or (dash and last not in _DAYS):
            raise ConfigError(
                f"{shown(text)} names a day that is none; the days are Mon, Tue, Wed, Thu, Fri, "
                "Sat and Sun, as in Mon-Fri or Sat,Sun."
            )
        begins = _DAYS.index(first)
        count = (_DAYS.index(last) - begins) % 7 + 1 if dash else 1
        found += [(begins + step) % 7 for step in range(count)]
    return found


def _joined(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The spans within one week, those that overlap or touch as one."""
    pieces: list[tuple[int, int]] = []
    for begins, ends in spans:
        pieces.append((begins, min(ends, _WEEK)))
        if ends > _WEEK:
            pieces.append((0, ends - _WEEK))
    joined: list[tuple[int, int]] = []
    for begins, ends in sorted(pieces):
        if joined and begins <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], ends))
        else:
            joined.append((begins, ends))
    return tuple(joined)
