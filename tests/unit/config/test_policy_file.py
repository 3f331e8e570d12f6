"""Every way to write the policy file wrongly, and the one line that says so."""

from pathlib import Path

import pytest

from config.errors import ConfigError, PolicyError
from config.policy import Policy, load_policy, parse_policy


def problems_of(text: str) -> tuple[str, ...]:
    """What is said about a file with this text."""
    with pytest.raises(PolicyError) as refused:
        parse_policy(text, "policy.toml")
    return refused.value.problems


KEEP_RANGE = "is not a whole number from 0 to 9223372036854775807"


@pytest.mark.parametrize(
    ("text", "begin", "end"),
    [
        # Keys that nobody knows, at every level.
        ("relase_delay = '5m'", 'relase_delay = "5m" is not a known key', '"release_delay"?'),
        ("xyz = 1", "xyz = 1 is not a known key", "schedule, windows, guards, defaults, override."),
        ("[default]\nkeep = 1", "default = {…} is not a known key", 'did you mean "defaults"?'),
        ("[defaults]\nmax_ages = '5m'", '[defaults] max_ages = "5m" is not a', '"max_age"?'),
        ("[defaults]\nKeep = 5", "[defaults] Keep = 5 is not a known key", '"keep"?'),
        ("[schedule]\nreep = '5m'", '[schedule] reep = "5m" is not a known key', '"reap"?'),
        ("[schedule]\nqqq = '5m'", '[schedule] qqq = "5m" is not a', "housekeeping."),
        (
            "[[override]]\nmatch = 'a'\nkeep = 1\nmaxage = '1d'",
            'override 1 ("a") maxage = "1d" is not a known key',
            'did you mean "max_age"?',
        ),
        (
            "[defaults]\nrelease_delay = '5m'",
            '[defaults] release_delay = "5m" is not a known key',
            "move it to the top of the file, above the first heading.",
        ),
        # Durations.
        ("release_delay = '5'", 'release_delay = "5" has no unit', '"1h30m" or "30d".'),
        ("release_delay = 5", "release_delay = 5 is not a text with a unit", 'such as "30d".'),
        ("release_delay = 'off'", 'release_delay = "off" is not a duration', '"30d".'),
        ("undo_window = 7", "undo_window = 7 is not a text with a unit", 'or "off".'),
        ("undo_windw = '7d'", 'undo_windw = "7d" is not a known key', '"undo_window"?'),
        ("release_delay = true", "release_delay = true is not a text", 'such as "30d".'),
        ("[defaults]\nmax_age = 30", "[defaults] max_age = 30 is not a text", 'or "off".'),
        ("[defaults]\nmax_age = nan", "[defaults] max_age = nan is not a text", 'or "off".'),
        ("[defaults]\nmax_age = -inf", "[defaults] max_age = -inf is not a text", 'or "off".'),
        ("[defaults]\nmax_age = ['1d']", "[defaults] max_age = […] is not a text", '"off".'),
        ("[defaults]\nmax_age = 07:32:00", "[defaults] max_age = 07:32:00 is not a", '"off".'),
        ("[defaults]\nmax_age = false", "[defaults] max_age = false is not a text", '"off".'),
        ("[defaults]\nmax_age = ''", '[defaults] max_age = "" is empty', 'or "off".'),
        ("[defaults]\nmax_age = 'OFF'", '[defaults] max_age = "OFF" is not a', 'or "off".'),
        ("[defaults]\nmax_age = '-5d'", '[defaults] max_age = "-5d" is negative', 'or "off".'),
        ("[defaults]\nmax_age = 'inf'", '[defaults] max_age = "inf" is not a finite', '"off".'),
        (
            "[defaults]\nstale_running_max_age = '15'",
            '[defaults] stale_running_max_age = "15" has no unit',
            'or "off".',
        ),
        (
            "[[override]]\nmatch = 'a'\nstale_claim_max_age = '1h1h'",
            'override 1 ("a") stale_claim_max_age = "1h1h" names the unit h twice',
            'or "off".',
        ),
        # How many rows to keep.
        ("[defaults]\nkeep = 5.5", f"[defaults] keep = 5.5 {KEEP_RANGE}", '100, or "off".'),
        ("[defaults]\nkeep = -1", f"[defaults] keep = -1 {KEEP_RANGE}", '100, or "off".'),
        ("[defaults]\nkeep = true", f"[defaults] keep = true {KEEP_RANGE}", '100, or "off".'),
        ("[defaults]\nkeep = '5'", f'[defaults] keep = "5" {KEEP_RANGE}', '100, or "off".'),
        ("[defaults]\nkeep = nan", f"[defaults] keep = nan {KEEP_RANGE}", '100, or "off".'),
        ("[defaults]\nkeep = inf", f"[defaults] keep = inf {KEEP_RANGE}", '100, or "off".'),
        ("[defaults]\nkeep = 1e19", f"[defaults] keep = 1e+19 {KEEP_RANGE}", '100, or "off".'),
        (
            "[defaults]\nkeep = 9223372036854775808",
            f"[defaults] keep = 9223372036854775808 {KEEP_RANGE}",
            '100, or "off".',
        ),
        # Overrides.
        (
            "[[override]]\nkeep = 1",
            "override 1 has no match",
            'write one, such as match = "tenant-a/*".',
        ),
        ("[[override]]\nmatch = ''\nkeep = 1", 'override 1 match = "" is not a text', "quotes."),
        ("[[override]]\nmatch = 5\nkeep = 1", "override 1 match = 5 is not a text", "quotes."),
        (
            "[[override]]\nmatch = 'a'",
            'override 1 ("a") sets nothing',
            "stale_claim_max_age, or remove it.",
        ),
        (
            "[[override]]\nmatch = 'a'\nkeep = 1\n[[override]]\nmatch = 'a'\nmax_age = '1d'",
            'override 2 ("a") has the same match as override 1',
            "make one override of the two.",
        ),
        ("[override]\nmatch = 'a'", "override = {…} is not a list", "in double brackets."),
        ("override = [1]", "override = […] is not a list", "in double brackets."),
        # The schedule.
        ("[schedule]\nreap = '999ms'", '[schedule] reap = "999ms" is not a period', '"10m".'),
        ("[schedule]\nreap = '1441m'", '[schedule] reap = "1441m" is not a period', '"10m".'),
        ("[schedule]\nreap = 'off'", '[schedule] reap = "off" is not a duration', '"30d".'),
        ("[schedule]\nreap = 600", "[schedule] reap = 600 is not a text", 'such as "30d".'),
        # Everything else of a wrong type.
        ("defaults = 3", "defaults = 3 is not a table", "its keys below."),
        ("schedule = 'daily'", 'schedule = "daily" is not a table', "its keys below."),
        (
            "allow_short_retention = 'yes'",
            'allow_short_retention = "yes" is neither true nor false',
            "without quotes.",
        ),
        ("allow_short_retention = 1", "allow_short_retention = 1 is neither", "quotes."),
    ],
)
def test_a_mistake_is_told_in_one_sentence(text: str, begin: str, end: str) -> None:
    """The file, the place, the key, the value, and what to write instead."""
    (problem,) = problems_of(text)

    assert problem.startswith(f"policy.toml: {begin}")
    assert problem.endswith(end)
    assert "\n" not in problem


@pytest.mark.parametrize("period", ["1s", "1440m", "24h"])
def test_a_period_at_its_limits_is_taken(period: str) -> None:
    assert "reap" in parse_policy(f"[schedule]\nreap = '{period}'", "policy.toml").schedule


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("max_age = 30d", "line 1, column 13"),
        ("[defaults\n", "line 1, column 10"),
        ("keep = 1\nkeep = 2\n", "line 2, column 9"),
        ("[defaults]\n[defaults]", "twice"),
        ("a = " + "[" * 5000, ""),
        ("a = " + "9" * 5000, ""),
    ],
)
def test_what_is_no_toml_is_refused_with_its_place(text: str, why: str) -> None:
    (problem,) = problems_of(text)

    assert problem.startswith("policy.toml: this is not TOML: ")
    assert why in problem
    assert 'a text such as "30d" in quotes' in problem
    assert "sys." not in problem


def test_all_mistakes_of_a_file_are_told_at_once() -> None:
    """A person corrects the file once, and no half of it is used meanwhile."""
    problems = problems_of(
        """
        release_delay = "5"
        [schedule]
        reap = "25h"
        [defaults]
        keep = 5.5
        [[override]]
        match = "a"
        max_age = 3
        """
    )

    assert [problem.split(" = ")[0] for problem in sorted(problems)] == [
        "policy.toml: [defaults] keep",
        "policy.toml: [schedule] reap",
        'policy.toml: override 1 ("a") max_age',
        "policy.toml: release_delay",
    ]


def test_the_message_is_its_problems_line_by_line() -> None:
    """An error of any number of problems is printed as it is."""
    error = PolicyError("One.", "Two.")

    assert str(error) == "One.\nTwo."
    assert error.problems == ("One.", "Two.")
    assert isinstance(error, ConfigError)


def test_a_value_of_any_length_leaves_the_line_short() -> None:
    (problem,) = problems_of(f"release_delay = '{'x' * 10_000}'")

    assert "x…" in problem
    assert len(problem) < 300


def test_a_password_in_the_wrong_place_is_not_repeated() -> None:
    """Someone pasted the database's address into the policy."""
    (problem,) = problems_of("database = 'postgresql://u:s3cret@h/db'")

    assert "s3cret" not in problem
    assert "postgresql://***h/db" in problem


def test_a_file_is_read_and_named_by_its_name(tmp_path: Path) -> None:
    """The path stands in the log once; rules are told by the short name."""
    path = tmp_path / "retention.toml"
    path.write_text("[[override]]\nmatch = 'ä*'\nkeep = 5\n", encoding="utf-8")

    policy = load_policy(path)

    assert policy.for_scope("äb").keep == 5
    assert policy.source == "retention.toml"
    assert policy.explain("äb")[1].source == 'override "ä*" (retention.toml, override 1)'


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    """Editors on Windows begin a file with one."""
    path = tmp_path / "policy.toml"
    path.write_bytes(b"\xef\xbb\xbf[defaults]\r\nkeep = 1\r\n")

    assert load_policy(path).for_scope("a").keep == 1


def test_an_empty_file_deletes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.touch()

    assert load_policy(path).for_scope("a") == Policy.empty().for_scope("a")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """It is never taken for an empty one: that a policy was lost has to be seen."""
    path = tmp_path / "policy.toml"

    with pytest.raises(PolicyError) as refused:
        load_policy(path)

    assert str(refused.value).startswith(f"{path}: there is no such policy file; correct the path")


def test_a_folder_is_no_policy_file(tmp_path: Path) -> None:
    with pytest.raises(PolicyError) as refused:
        load_policy(tmp_path)

    assert str(refused.value).startswith(f"{tmp_path}: the policy file cannot be read (Is a dir")


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    """A link to itself is one that even root cannot open."""
    path = tmp_path / "policy.toml"
    path.symlink_to(path)

    with pytest.raises(PolicyError) as refused:
        load_policy(path)

    assert str(refused.value).startswith(f"{path}: the policy file cannot be read (Too many")


def test_what_is_not_utf_8_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_bytes(b"[[override]]\nmatch = '\xe4*'\nkeep = 1\n")

    with pytest.raises(PolicyError) as refused:
        load_policy(path)

    assert str(refused.value) == (
        "policy.toml: line 2 is not UTF-8 (byte 0xe4); save the file as UTF-8."
    )
