"""What `[guards]` may say, and the ages and numbers that hardly anybody means."""

from datetime import timedelta

import pytest

from config.errors import PolicyError
from config.guards import DEFAULT_GUARDS, GuardPolicy
from config.policy import parse_policy


def guards_of(lines: str) -> GuardPolicy:
    """The guards of a file that holds nothing else."""
    return parse_policy(f"[guards]\n{lines}", "policy.toml").guards


def problems_of(text: str) -> tuple[str, ...]:
    """What is said about a file with this text."""
    with pytest.raises(PolicyError) as refused:
        parse_policy(text, "policy.toml")
    return refused.value.problems


def test_without_a_word_every_guard_holds_with_its_default() -> None:
    guards = parse_policy("", "policy.toml").guards

    assert guards == DEFAULT_GUARDS
    assert guards.sightings
    assert guards.outage
    assert guards.fresh_flips
    assert guards.plausible_times
    assert guards.breaker_share is None
    assert guards.breaker_rows is None


def test_every_key_is_read() -> None:
    guards = guards_of(
        """
        heartbeat = "30s"
        missing_checkpoint_sighting = "2m"
        live_writer_sighting = "1ms"
        breaker_hold = "1h"
        breaker_share = 0.25
        breaker_rows = 5000
        sightings = false
        outage = false
        fresh_flips = false
        plausible_times = false
        """
    )

    assert guards == GuardPolicy(
        heartbeat=timedelta(seconds=30),
        missing_checkpoint_sighting=timedelta(minutes=2),
        live_writer_sighting=timedelta(milliseconds=1),
        breaker_hold=timedelta(hours=1),
        breaker_share=0.25,
        breaker_rows=5000,
        sightings=False,
        outage=False,
        fresh_flips=False,
        plausible_times=False,
    )


@pytest.mark.parametrize(
    ("line", "begin", "end"),
    [
        ("hartbeat = '60s'", 'hartbeat = "60s" is not a known key', '"heartbeat"?'),
        ("heartbeat = 60", "heartbeat = 60 is not a text with a unit", 'such as "30d".'),
        ("heartbeat = '0s'", 'heartbeat = "0s" is not a time from 1ms to 1d', '"60s".'),
        ("breaker_hold = '2d'", 'breaker_hold = "2d" is not a time from 1ms', '"60s".'),
        ("breaker_hold = '0s'", 'breaker_hold = "0s" is not a time from 1ms', '"60s".'),
        ("breaker_hold = '-1m'", 'breaker_hold = "-1m" is negative', '"30d".'),
        (
            "live_writer_sighting = '0s'",
            'live_writer_sighting = "0s" is not a time from 1ms',
            '"60s".',
        ),
        (
            "missing_checkpoint_sighting = '0s'",
            'missing_checkpoint_sighting = "0s" is not a time from 1ms',
            '"60s".',
        ),
        ("breaker_share = 0", "breaker_share = 0 is not a share over 0", 'or "off".'),
        ("breaker_share = 1.5", "breaker_share = 1.5 is not a share over 0", 'or "off".'),
        ("breaker_share = nan", "breaker_share = nan is not a share over 0", 'or "off".'),
        ("breaker_share = true", "breaker_share = true is not a share over 0", 'or "off".'),
        ("breaker_share = -0.1", "breaker_share = -0.1 is not a share over 0", 'or "off".'),
        ("breaker_rows = 0", "breaker_rows = 0 is not a whole number from 1", 'or "off".'),
        ("breaker_rows = -1", "breaker_rows = -1 is not a whole number from 1", 'or "off".'),
        ("breaker_rows = 2.5", "breaker_rows = 2.5 is not a whole number", 'or "off".'),
        ("outage = 'off'", 'outage = "off" is neither true nor false', "without quotes."),
    ],
)
def test_a_mistake_is_told_in_one_sentence(line: str, begin: str, end: str) -> None:
    (problem,) = problems_of(f"[guards]\n{line}")

    assert problem.startswith(f"policy.toml: [guards] {begin}")
    assert problem.endswith(end)


@pytest.mark.parametrize(
    ("arm", "slip", "meant", "reason"),
    [
        ("max_age", "'59m'", "'1h'", "is under 1h"),
        ("stale_running_max_age", "'9m59s'", "'10m'", "is under 10m, or 10 heartbeats"),
        ("keep", "0", "1", "keeps no finished row at all"),
    ],
)
def test_what_is_almost_always_a_slip_is_refused(
    arm: str, slip: str, meant: str, reason: str
) -> None:
    """In the defaults and in an override, naming both; the file may say that it is meant."""
    layers = "[defaults]\n{arm} = {value}\n[[override]]\nmatch = 'a'\n{arm} = {value}"
    text = layers.format(arm=arm, value=slip)

    first, second = problems_of(text)

    assert first.startswith(f"policy.toml: [defaults] {arm} = ")
    assert second.startswith(f'policy.toml: override 1 ("a") {arm} = ')
    for problem in (first, second):
        assert reason in problem
        assert "allow_short_retention = true" in problem
    assert parse_policy(layers.format(arm=arm, value=meant), "policy.toml").defaults
    assert parse_policy(f"allow_short_retention = true\n{text}", "policy.toml").defaults
    assert parse_policy(text, "policy.toml", floors=False).defaults


def test_the_floor_under_a_stale_age_rises_with_the_heartbeat_and_never_falls() -> None:
    text = "[guards]\nheartbeat = '{beat}'\n[defaults]\nstale_running_max_age = '{age}'"

    (slow,) = problems_of(text.format(beat="2m", age="19m"))
    (fast,) = problems_of(text.format(beat="1ms", age="9m"))

    assert "is under 20m, or 10 heartbeats" in slow
    assert "is under 10m, or 10 heartbeats" in fast
    assert parse_policy(text.format(beat="2m", age="20m"), "policy.toml").defaults
    assert parse_policy(text.format(beat="1ms", age="10m"), "policy.toml").defaults


def test_a_flip_that_runs_too_rarely_to_watch_is_refused() -> None:
    """A gap of half the stale age counts as an outage; a tick may be a little late."""
    text = (
        "{guards}[schedule]\nflip_stale_running = '{period}'\n"
        "[[override]]\nmatch = 'a'\nstale_running_max_age = '15m'\n"
        "[defaults]\nstale_running_max_age = '2h'"
    )

    (problem,) = problems_of(text.format(guards="", period="6m46s"))

    assert problem.startswith("policy.toml: [schedule] flip_stale_running = 406s is too close to")
    assert "half of the shortest stale_running_max_age (15m)" in problem
    assert "run it at least every 405s, or set outage = false" in problem
    assert parse_policy(text.format(guards="", period="6m45s"), "policy.toml").schedule
    lifted = text.format(guards="[guards]\noutage = false\n", period="1h")
    assert parse_policy(lifted, "policy.toml").schedule


@pytest.mark.parametrize(("age", "remedy"), [("2m13s", "run it at least every"), ("1s", "set ")])
def test_period_that_no_file_names_is_looked_at_as_well(age: str, remedy: str) -> None:
    """The flip runs every minute then, which is too rare for a very short stale age."""
    text = f"allow_short_retention = true\n{{}}[defaults]\nstale_running_max_age = '{age}'"

    (problem,) = problems_of(text.format(""))

    assert "[schedule] flip_stale_running = 1m, the default, is too close to" in problem
    assert f"hold every flip; {remedy}" in problem
    assert parse_policy(text.format("[guards]\noutage = false\n"), "policy.toml").defaults
    assert parse_policy(text.replace(age, "2m14s").format(""), "policy.toml").defaults
