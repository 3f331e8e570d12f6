"""What the driver reports becomes an error that says what its caller is to do."""

import pytest
from psycopg import errors as pg

from store.errors import StoreError, StoreUnavailable, TimedOut
from store.translation import translated


@pytest.mark.parametrize(
    ("reported", "becomes"),
    [
        (pg.LockNotAvailable, TimedOut),
        (pg.QueryCanceled, TimedOut),
        # A smaller batch may get through where a large one met somebody.
        (pg.DeadlockDetected, TimedOut),
        (pg.SerializationFailure, TimedOut),
        (pg.AdminShutdown, StoreUnavailable),
        (pg.NumericValueOutOfRange, StoreError),
        (pg.ForeignKeyViolation, StoreError),
        (pg.RaiseException, StoreError),
    ],
)
def test_each_report_becomes_exactly_one_kind_of_error(
    reported: type[Exception], becomes: type[StoreError]
) -> None:
    with pytest.raises(StoreError) as raised, translated():
        raise reported("as it was said\nand more")

    assert type(raised.value) is becomes
    assert "\n" not in str(raised.value)
