"""How long a backlog takes at a pace: a product, and honest where there is none."""

import pytest

from store.overview import Pace
from worker.backlogs import Ahead, ahead

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("rows", "pace", "expected"),
    [
        (50_000_000, Pace(1_000_000, HOUR), Ahead(50_000_000, 1_000_000, HOUR, 50 * HOUR)),
        (0, Pace(10, HOUR), Ahead(0, 10, HOUR, 0)),
        (0, None, Ahead(0, 0, 0, 0)),
        (5, None, Ahead(5, 0, 0, None)),
        (5, Pace(0, HOUR), Ahead(5, 0, HOUR, None)),
        (None, Pace(10, HOUR), Ahead(None, 10, HOUR, None)),
    ],
)
def test_what_is_left(rows: int | None, pace: Pace | None, expected: Ahead) -> None:
    assert ahead(rows, pace) == expected
