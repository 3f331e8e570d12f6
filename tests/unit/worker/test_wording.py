"""Counts and lengths of time are said in one way, whoever says them."""

from datetime import timedelta

import pytest

from worker.wording import counted, span, span_of_ms


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 ms"),
        (0.0534, "53 ms"),
        (1, "1 s"),
        (1.25, "1.2 s"),
        (59.6, "60 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7200, "2 h"),
        (200_000, "2 d"),
    ],
)
def test_span_has_one_unit(seconds: float, text: str) -> None:
    assert span(timedelta(seconds=seconds)) == text
    if seconds >= 1:
        assert span_of_ms(round(seconds * 1000)) == text


def test_span_of_any_number_of_the_ledger_is_said() -> None:
    assert span_of_ms(2**63 - 1) == "106751991167 d"


def test_one_has_no_plural() -> None:
    assert [counted(n, "row") for n in (0, 1, 2, 12_345)] == [
        *("0 rows", "1 row", "2 rows", "12,345 rows"),
    ]
    assert counted(2, "entry", "entries") == "2 entries"
