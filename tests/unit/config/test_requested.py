"""An operator's request in words, and how much of the policy file is left beside it."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import PolicyError
from config.policy import Policy, ScopePolicy, parse_policy
from config.requested import arms_in_words, names_nothing, requested_policy

FILE = parse_policy(
    'release_delay = "7m"\n[guards]\nheartbeat = "30s"\n[defaults]\nmax_age = "90d"\nkeep = 5\n'
    '[[override]]\nmatch = "t/*"\nkeep = 1\n',
    "policy.toml",
)


def test_arms_of_a_request_take_the_place_of_the_files_and_the_rest_of_it_stays() -> None:
    policy = requested_policy({"max_age": "2d"}, "reap", FILE, floors=True)

    assert policy.for_scope("t/1") == ScopePolicy(max_age=timedelta(days=2))
    assert policy.release_delay == timedelta(minutes=7)
    assert policy.guards == FILE.guards
    assert policy.source == "the request"


def test_arms_of_a_reap_leave_each_scope_its_stale_age() -> None:
    """By which a row that was flipped is kept for its writer to correct; of the rest nothing."""
    file = parse_policy(
        '[defaults]\nmax_age = "90d"\nstale_running_max_age = "2h"\nstale_claim_max_age = "1h"\n'
        '[[override]]\nmatch = "t/*"\nkeep = 1\nstale_running_max_age = "3h"\n'
        '[[override]]\nmatch = "off"\nstale_running_max_age = "off"\n',
        "policy.toml",
    )

    policy = requested_policy({"keep": 3}, "reap", file, floors=True)

    assert {scope: policy.for_scope(scope) for scope in ("s", "t/1", "off")} == {
        "s": ScopePolicy(keep=3, stale_running_max_age=timedelta(hours=2)),
        "t/1": ScopePolicy(keep=3, stale_running_max_age=timedelta(hours=3)),
        "off": ScopePolicy(keep=3),
    }


def test_stale_age_of_a_request_is_every_scopes() -> None:
    file = parse_policy('[[override]]\nmatch = "t"\nstale_running_max_age = "3h"\n', "policy.toml")

    policy = requested_policy(
        {"stale_running_max_age": "1h"}, "flip_stale_running", file, floors=True
    )

    assert policy.for_scope("t") == ScopePolicy(stale_running_max_age=timedelta(hours=1))


@given(
    st.timedeltas(min_value=timedelta(hours=1), max_value=timedelta(days=10_000)),
    st.integers(1, 2**63 - 1),
)
def test_what_is_written_is_what_is_read(age: timedelta, keep: int) -> None:
    words = arms_in_words({"max_age": age, "keep": keep, "stale_running_max_age": None})

    policy = requested_policy(words, "reap", Policy.empty(), floors=True)

    assert policy.for_scope("s") == ScopePolicy(max_age=age, keep=keep)


@pytest.mark.parametrize(
    ("arms", "job"),
    [
        ({"keep": 0}, "reap"),
        ({"max_age": "59m"}, "reap"),
        ({"stale_running_max_age": "299s"}, "flip_stale_running"),
    ],
)
def test_floor_holds_unless_it_is_lifted_or_the_file_says_otherwise(
    arms: dict[str, object], job: str
) -> None:
    """Ten of the file's own heartbeats, which are 30 s here."""
    short = parse_policy("allow_short_retention = true", "policy.toml")

    with pytest.raises(PolicyError, match="floors"):
        requested_policy(arms, job, FILE, floors=True)
    requested_policy(arms, job, FILE, floors=False)
    requested_policy(arms, job, short, floors=True)


def test_every_problem_is_named() -> None:
    with pytest.raises(PolicyError) as refused:
        requested_policy({"max_age": 5, "keep": "x", "kep": 1}, "reap", FILE, floors=True)

    assert len(refused.value.problems) == 3


def test_policy_may_name_nothing_for_some_scopes_only() -> None:
    file = parse_policy('[[override]]\nmatch = "t/*"\nkeep = 1\n', "policy.toml")

    assert names_nothing(file, "reap", ["s", "u"])
    assert not names_nothing(file, "reap", ["s", "t/1"])
    assert not names_nothing(file, "reap", None)
    assert names_nothing(file, "flip_stale_running", None)
    assert not names_nothing(Policy.empty(), "reconcile_parked", None)
