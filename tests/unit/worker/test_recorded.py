"""The end of a part is recorded although the database went away just then, within limits."""

import pytest

from store.errors import StoreError, StoreUnavailable
from worker.recorded import recorded


class Database:
    """One that is away for the first tries."""

    def __init__(self, away_for: int, error: type[StoreError] = StoreUnavailable) -> None:
        self.tries = 0
        self._away_for = away_for
        self._error = error

    def record(self) -> str:
        self.tries += 1
        if self.tries <= self._away_for:
            raise self._error("away")
        return "recorded"


def test_it_is_tried_again_until_the_database_is_back() -> None:
    database = Database(away_for=2)

    assert recorded(database.record, lambda: False) == "recorded"
    assert database.tries == 3


def test_process_that_is_to_end_tries_once() -> None:
    database = Database(away_for=1)

    with pytest.raises(StoreUnavailable):
        recorded(database.record, lambda: True)
    assert database.tries == 1


def test_what_waiting_does_not_mend_is_not_tried_again() -> None:
    database = Database(away_for=1, error=StoreError)

    with pytest.raises(StoreError):
        recorded(database.record, lambda: False)
    assert database.tries == 1
