"""How the end of a part gets on record although the database went away just then.

Otherwise a part that was done would count as lost, and its run as failed, after each restart of the
database.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Final, TypeVar

from store.errors import StoreUnavailable

T = TypeVar("T")

# WHY no longer: a thread that waits here does no other work, and a tick makes up for the part.
WITHIN_S: Final = 60.0
_PAUSES_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)


def recorded(record: Callable[[], T], stopping: Callable[[], bool]) -> T:
    """What `record` gives, which is tried again for a minute; only once if the process is to end.

    Recording must be safe to repeat: the first try may have been committed before its answer was
    lost. Raises StoreUnavailable.
    """
    ends = time.monotonic() + WITHIN_S
    for tried in itertools.count():
        try:
            return record()
        except StoreUnavailable:
            pause_s = _PAUSES_S[min(tried, len(_PAUSES_S) - 1)]
            if stopping() or time.monotonic() + pause_s > ends:
                raise
            time.sleep(pause_s)
    raise AssertionError("counting has no end")
