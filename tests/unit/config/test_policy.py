"""Which rule wins for a scope, and how that is told."""

import fnmatch
from collections.abc import Mapping
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.globs import Glob
from config.policy import ARMS, Policy, Rule, ScopePolicy, parse_policy

DAY = timedelta(days=1)


def policy_of(defaults: Mapping[str, str], *overrides: tuple[str, Mapping[str, str]]) -> Policy:
    """The policy of a file with these tables; the values are written as in TOML."""
    lines = ["[defaults]", *(f"{key} = {value}" for key, value in defaults.items())]
    for match, sets in overrides:
        lines += ["[[override]]", f"match = '{match}'"]
        lines += [f"{key} = {value}" for key, value in sets.items()]
    return parse_policy("\n".join(lines), "policy.toml")


def test_without_a_policy_no_arm_is_applied() -> None:
    """Nothing set is nothing deleted: every arm is None for every scope."""
    policy = Policy.empty()

    assert policy.for_scope("tenant-a") == ScopePolicy(None, None, None, None)
    assert policy.source == "no policy file"
    assert policy.release_delay == timedelta(minutes=10)
    assert {rule.source for rule in policy.explain("tenant-a")} == {"not set"}


def test_an_empty_file_is_an_empty_policy() -> None:
    assert parse_policy("", "no policy file") == Policy.empty()


@pytest.mark.parametrize("said", ["", 'undo_window = "off"', 'undo_window = "0s"'])
def test_undo_is_off_where_nobody_sets_a_window(said: str) -> None:
    """What is kept for no time could not be brought back, and is not kept."""
    assert parse_policy(said, "policy.toml").undo_window is None


def test_a_whole_file_is_read() -> None:
    """Every key of the file ends up in its field."""
    policy = parse_policy(
        """
        allow_short_retention = true
        release_delay = "0s"
        undo_window = "7d"
        [schedule]
        reap = "10m"
        flip_stale_running = "1s"
        reconcile_parked = "24h"
        release_sessions = "1.5s"
        [defaults]
        max_age = "30d"
        keep = 100
        stale_running_max_age = "15m"
        stale_claim_max_age = "off"
        [[override]]
        match = "tenant-a/*"
        max_age = "90d"
        keep = "off"
        """,
        "policy.toml",
    )

    assert policy.allow_short_retention is True
    assert policy.release_delay == timedelta(0)
    assert policy.undo_window == 7 * DAY
    assert policy.schedule == {
        "reap": timedelta(minutes=10),
        "flip_stale_running": timedelta(seconds=1),
        "reconcile_parked": timedelta(hours=24),
        "release_sessions": timedelta(seconds=1.5),
    }
    assert policy.for_scope("tenant-b") == ScopePolicy(
        max_age=30 * DAY,
        keep=100,
        stale_running_max_age=timedelta(minutes=15),
        stale_claim_max_age=None,
    )
    assert policy.for_scope("tenant-a/1") == ScopePolicy(
        max_age=90 * DAY,
        keep=None,
        stale_running_max_age=timedelta(minutes=15),
        stale_claim_max_age=None,
    )


def test_zero_is_a_limit_and_not_an_absence() -> None:
    text = "allow_short_retention = true\n[defaults]\nmax_age = '0s'\nkeep = 0"
    policy = parse_policy(text, "policy.toml")

    assert policy.for_scope("a") == ScopePolicy(max_age=timedelta(0), keep=0)


def test_a_whole_number_may_be_written_with_a_point() -> None:
    """5.0 is five, and is an int afterwards, as the ledger's statements expect."""
    keep = policy_of({"keep": "5.0"}).for_scope("a").keep

    assert keep == 5
    assert type(keep) is int


def test_flags_make_one_rule_for_every_scope() -> None:
    everywhere = ScopePolicy(max_age=DAY, keep=3, stale_claim_max_age=timedelta(0))

    policy = Policy.of(everywhere, "flags")

    assert policy.for_scope("any/scope") == everywhere
    assert policy.source == "flags"
    assert ScopePolicy() == Policy.of(ScopePolicy(), "flags").for_scope("any/scope")


@pytest.mark.parametrize(
    ("stronger", "weaker", "scope"),
    [
        pytest.param("tenant-a", "tenant-[a]", "tenant-a", id="exact over glob"),
        pytest.param("ab", "*ab*", "ab", id="exact over as many literals"),
        pytest.param("a[]", "a[[]]", "a[]", id="exact with brackets that nothing closes"),
        pytest.param("tenant-a/*", "tenant-*", "tenant-a/1", id="more literals"),
        pytest.param("*/prod", "a*", "a/prod", id="literals wherever they stand"),
        pytest.param("*b*d", "a*", "abcd", id="more literals, though more wildcards"),
        pytest.param("a*", "[ab]*", "ab", id="a sequence is no literal"),
        pytest.param("*a", "[*]?", "*a", id="nor is a star in brackets"),
        pytest.param("a[*", "a*", "a[b", id="an open bracket is one"),
        pytest.param("a*", "*a*", "ab", id="fewer wildcards"),
        pytest.param("a[xyz]*", "a?[xyz]*", "axz", id="a sequence is one wildcard"),
        pytest.param("a**", "?a*", "aa", id="stars in a row are one wildcard"),
    ],
)
@pytest.mark.parametrize("stronger_first", [True, False])
def test_the_more_specific_override_wins(
    stronger: str, weaker: str, scope: str, stronger_first: bool
) -> None:
    """Whichever of the two stands first in the file."""
    pair = [(stronger, {"keep": "1"}), (weaker, {"keep": "2"})]
    policy = policy_of({"keep": "3"}, *(pair if stronger_first else reversed(pair)))

    assert all(fnmatch.fnmatchcase(scope, pattern) for pattern in (stronger, weaker))
    assert policy.for_scope(scope).keep == 1


@pytest.mark.parametrize("matches", [("a*", "*b"), ("*b", "a*")])
def test_of_two_equally_specific_ones_the_later_in_the_file_wins(matches: tuple[str, str]) -> None:
    policy = policy_of({}, (matches[0], {"keep": "1"}), (matches[1], {"keep": "2"}))

    assert policy.for_scope("ab").keep == 2


def test_each_field_is_resolved_by_itself() -> None:
    """The strongest override that sets a field decides it, not the strongest one that fits."""
    policy = policy_of(
        {"max_age": '"1d"', "keep": "1", "stale_claim_max_age": '"1m"'},
        ("tenant-*", {"max_age": '"2d"', "keep": "2"}),
        ("tenant-a", {"keep": "3"}),
    )

    assert policy.for_scope("tenant-a") == ScopePolicy(
        max_age=2 * DAY, keep=3, stale_claim_max_age=timedelta(minutes=1)
    )


def test_off_in_an_override_takes_the_arm_away_there_only() -> None:
    policy = policy_of({"keep": "1"}, ("a*", {"keep": '"off"'}))

    assert policy.for_scope("ab").keep is None
    assert policy.for_scope("b").keep == 1


def test_a_weaker_override_does_not_switch_an_arm_on_again() -> None:
    policy = policy_of({}, ("ab", {"keep": '"off"'}), ("a*", {"keep": "5"}))

    assert policy.for_scope("ab").keep is None


@pytest.mark.parametrize(
    ("match", "scope", "fits"),
    [
        ("tenant-a/*", "tenant-a/", True),
        ("tenant-a/*", "tenant-a/b/c", True),
        ("tenant-a/*", "tenant-a", False),
        ("tenant-a/*", "tenant-ab/c", False),
        ("tenant-a/*", "TENANT-A/b", False),
        ("enant", "tenant", False),
        ("tenan", "tenant", False),
        ("a.c", "abc", False),
        ("a?c", "a/c", True),
        ("a?c", "ac", False),
        ("a[!b]c", "abc", False),
        ("a[!b]c", "axc", True),
        ("[]]", "]", True),
        ("*", "a\nb", True),
        ("a", "a\n", False),
    ],
)
def test_a_glob_fits_the_whole_scope_case_sensitively(match: str, scope: str, fits: bool) -> None:
    policy = policy_of({}, (match, {"keep": "1"}))

    assert (policy.for_scope(scope).keep == 1) is fits


def test_explain_names_the_rule_behind_each_value_and_what_it_beat() -> None:
    """The whole chain, the strongest first, as `policy explain` shows it."""
    policy = policy_of(
        {"max_age": '"30d"', "keep": "100"},
        ("*", {"keep": "50"}),
        ("tenant-a/*", {"keep": '"off"', "stale_claim_max_age": '"90m"'}),
        ("tenant-b/*", {"keep": "7"}),
    )
    first, second = (
        'override "*" (policy.toml, override 1)',
        'override "tenant-a/*" (policy.toml, override 2)',
    )

    assert policy.explain("tenant-a/1") == [
        Rule("max_age", "30d", "defaults"),
        Rule(
            "keep",
            "off",
            second,
            beaten=(Rule("keep", "50", first), Rule("keep", "100", "defaults")),
        ),
        Rule("stale_running_max_age", "not set", "not set"),
        Rule("stale_claim_max_age", "90m", second),
    ]


PATTERNS = st.text("ab*?[]!", min_size=1, max_size=6)
ARM_VALUES = {
    "max_age": st.sampled_from(['"1d"', '"2d"', '"off"']),
    "keep": st.sampled_from(["1", "2", '"off"']),
    "stale_running_max_age": st.sampled_from(['"3d"', '"off"']),
    "stale_claim_max_age": st.sampled_from(['"4d"', '"off"']),
}
SETS = st.fixed_dictionaries({}, optional=ARM_VALUES)
PARSED = {'"off"': None, "1": 1, "2": 2} | {f'"{n}d"': n * DAY for n in range(1, 5)}


def rank_by_hand(pattern: str) -> tuple[bool, int, int]:
    """The specificity by reading the pattern a character at a time."""
    literals = wildcards = place = 0
    while place < len(pattern):
        # In brackets the first character after an optional `!` never closes them.
        begin = place + 1 + (pattern[place + 1 : place + 2] == "!")
        end = pattern.find("]", begin + 1)
        if pattern[place] == "[" and end != -1:
            wildcards += 1
            place = end
        elif pattern[place] in "*?":
            wildcards += pattern[place] == "?" or pattern[place - 1 : place] != "*"
        else:
            literals += 1
        place += 1
    return (wildcards == 0, literals, -wildcards)


@given(
    defaults=SETS,
    overrides=st.lists(
        st.tuples(PATTERNS, SETS.filter(bool)), max_size=6, unique_by=lambda it: it[0]
    ),
    scope=st.text("ab[]!*?", max_size=6),
)
def test_every_scope_gets_what_reading_the_file_by_hand_gives(
    defaults: dict[str, str], overrides: list[tuple[str, dict[str, str]]], scope: str
) -> None:
    """Against an oracle that tries every override for every field, and against `explain`."""
    policy = policy_of(defaults, *overrides)
    expected = {}
    for arm in ARMS:
        said = [
            (*rank_by_hand(match), position, sets[arm])
            for position, (match, sets) in enumerate(overrides)
            if arm in sets and fnmatch.fnmatchcase(scope, match)
        ]
        expected[arm] = PARSED[max(said)[-1] if said else defaults.get(arm, '"off"')]

    resolved = policy.for_scope(scope)

    assert {arm: getattr(resolved, arm) for arm in ARMS} == expected
    for rule in policy.explain(scope):
        is_none = expected[rule.field] is None
        assert (rule.value in {"off", "not set"}) is is_none


@given(PATTERNS)
def test_specificity_reads_a_pattern_as_fnmatch_does(pattern: str) -> None:
    """Brackets that nothing closes, a `]` that comes first, and `!` are where readings part."""
    glob = Glob(pattern)

    assert glob.specificity == rank_by_hand(pattern)
    assert glob.specificity.exact == (glob.prefix == pattern)
    if glob.specificity.exact:
        assert fnmatch.fnmatchcase(pattern, pattern)


@given(PATTERNS, st.text("ab[]!*?", max_size=6))
def test_a_prefix_is_shared_by_every_scope_that_fits(pattern: str, scope: str) -> None:
    """The index finds an override by it, so a wrong one would lose a rule."""
    if fnmatch.fnmatchcase(scope, pattern):
        assert scope.startswith(Glob(pattern).prefix)
