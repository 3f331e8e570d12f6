"""A malformed policy is refused by name before any row is touched, over every store."""

import itertools
import math
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from store.contract import Reaped, Session
from store.errors import InvalidPolicy
from store.records import BIGINT_MIN
from store.retention import RetentionPolicy
from tests.store.stores import (
    ALL,
    NOW,
    OTHER_SCOPE,
    SCOPE,
    Stores,
    agent,
    checkpoint,
    ended,
    parked,
)

# No age and no count, whatever a lenient reader might make of it.
NO_NUMBER: list[Any] = [
    math.nan, math.inf, -math.inf, -1, -0.5, -5e-324, -(10**400), True, False, "", "5", "30d",
    "nan", b"5", Decimal(5), Decimal("nan"), 5j, timedelta(days=30), [], [5], (5,), {}, {5},
]  # fmt: skip
NO_COUNT: list[Any] = [5.5, 0.1, 1e-300, 4.999999999999999, *NO_NUMBER]
MALFORMED = [
    *(("max_age_ms", value) for value in NO_NUMBER),
    *(("stale_running_max_age_ms", value) for value in NO_NUMBER),
    *(("keep", value) for value in NO_COUNT),
]
# Every other field absent, valid, or malformed itself.
OTHERS: dict[str, tuple[Any, ...]] = {
    "max_age_ms": (None, 0, math.nan),
    "keep": (None, 0, "5"),
    "stale_running_max_age_ms": (None, 0, -1),
}


def brief(value: object) -> str:
    """A value as a test's name can hold it."""
    return repr(value)[:30]


def rows_of(scope: str) -> list[Any]:
    """Something for every arm and every line to take."""
    return [
        agent("silent", scope=scope, updated_at=0, session_id="s-1"),
        parked("resuming", "t", scope=scope, status="running", updated_at=0, park_claim_id="c"),
        ended("old", 10**9, scope=scope, session_id="s-2"),
        ended("undated", 10**9, scope=scope, settled_at=None),
        ended("new", 1, scope=scope),
        parked("waiting", "due", scope=scope, updated_at=0),
        parked("orphan", "gone", scope=scope, updated_at=0),
        parked("reserved", "t", scope=scope, updated_at=0, park_claim_id="c"),
        checkpoint("t", scope=scope),
        checkpoint("due", scope=scope, expires_at=NOW),
        Session(scope, "s-2", NOW),
    ]


@pytest.fixture(scope="module", params=ALL)
def filled(empty_stores: Callable[[str], Stores], request: pytest.FixtureRequest) -> Stores:
    """Stores that no test of this module may change, so that they are filled once."""
    stores = empty_stores(request.param)
    stores.fill(*rows_of(SCOPE), *rows_of(OTHER_SCOPE))
    return stores


@pytest.fixture
def untouched(filled: Stores) -> Iterator[Stores]:
    """The filled stores; afterwards every table is compared with what it was."""
    before = filled.tables()
    yield filled
    assert filled.tables() == before


@pytest.mark.parametrize(("field", "value"), MALFORMED, ids=brief)
def test_a_malformed_field_is_refused(untouched: Stores, field: str, value: Any) -> None:
    """By its name and its value, whatever the other fields say."""
    names = [name for name in OTHERS if name != field]
    for others in itertools.product(*(OTHERS[name] for name in names)):
        policy = RetentionPolicy(**{field: value}, **dict(zip(names, others, strict=True)))
        wrong = {field: value} | {
            name: said
            for name, said in zip(names, others, strict=True)
            if said is not None and said != 0
        }
        for checkpoints in (None, untouched.checkpoints):
            with pytest.raises(InvalidPolicy) as refused:
                untouched.agents.reap(SCOPE, NOW, policy, checkpoints)

            error = refused.value
            assert error.field in wrong
            assert error.value is wrong[error.field]
            assert error.field in str(error)
            assert repr(error.value) in str(error)
            assert len(str(error).splitlines()) == 1
            assert len(wrong) > 1 or error.field == field


@pytest.mark.parametrize("value", NO_NUMBER, ids=brief)
def test_a_malformed_lease_is_refused(untouched: Stores, value: Any) -> None:
    """The claim lease is validated like the ages, even before a dead checkpoint fails a row."""
    with pytest.raises(InvalidPolicy) as refused:
        untouched.agents.reconcile_parked(untouched.checkpoints, SCOPE, NOW, value)

    assert refused.value.field == "stale_claim_max_age_ms"
    assert refused.value.value is value
    assert "stale_claim_max_age_ms" in str(refused.value)
    assert repr(value) in str(refused.value)


@pytest.mark.parametrize("age", [10**400, 1e308, 2**64, NOW - BIGINT_MIN, 2.0**63 + NOW], ids=brief)
def test_a_cutoff_beyond_64_bits_selects_nothing(untouched: Stores, age: float) -> None:
    """No time is so early, so an age of such a size is valid and takes no row."""
    policies = [
        RetentionPolicy(max_age_ms=age),
        RetentionPolicy(stale_running_max_age_ms=age),
        RetentionPolicy(keep=int(age)),
        RetentionPolicy(keep=float(2**63)),
        RetentionPolicy(age, int(age), age),
    ]
    for policy, checkpoints in itertools.product(policies, (None, untouched.checkpoints)):
        assert untouched.agents.reap(SCOPE, NOW, policy, checkpoints) == Reaped()
