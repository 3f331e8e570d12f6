"""When silence can be trusted, as pure decisions over what is known of the job's watch."""

import pytest

from store.outage import Disturbance, Watched

MINUTE = 60_000
NOW = 1_796_029_200_000
LONG_AGO = NOW - 10**9


def watch(**known: int | None) -> Watched:
    """A job that ticks every minute and did so a minute ago, on a server that is long up."""
    usual: dict[str, int | None] = {
        "ticked_at": NOW - MINUTE,
        "period_ms": MINUTE,
        "timeline": 1,
        "postmaster_started_at": LONG_AGO,
    }
    return Watched(NOW, LONG_AGO, **usual | known)


@pytest.mark.parametrize(
    ("minutes_ago", "period", "shortest", "gap"),
    [
        (3, 1, 15, False),
        (3.001, 1, 15, True),
        # Half of the stale age is sooner than three periods.
        (7.5, 3, 15, False),
        (7.501, 3, 15, True),
        (7.5, 7, 15, False),
        (7.501, 7, 15, True),
        # No stale age anywhere.
        (15, 5, None, False),
        (15.001, 5, None, True),
    ],
)
def test_gap_is_three_periods_or_half_the_stale_age(
    minutes_ago: float, period: float, shortest: float | None, gap: bool
) -> None:
    """Whichever is shorter; a millisecond decides."""
    known = watch(ticked_at=NOW - int(minutes_ago * MINUTE), period_ms=int(period * MINUTE))

    assert known.gap(None if shortest is None else shortest * MINUTE) is gap


def test_first_tick_there_ever_is_follows_no_gap() -> None:
    known = watch(ticked_at=None, postmaster_started_at=None, timeline=None)

    assert not known.gap(15 * MINUTE)
    assert known.disturbance(1, 15 * MINUTE) is None
    assert known.undisturbed_since(1, 15 * MINUTE) == LONG_AGO


def test_tick_after_a_tick_finds_nothing() -> None:
    assert watch().disturbance(1, 15 * MINUTE) is None


def test_each_disturbance_is_told_from_the_others() -> None:
    assert watch(ticked_at=NOW - 4 * MINUTE).disturbance(1, None) == Disturbance(NOW, "gap")
    assert watch().disturbance(2, None) == Disturbance(NOW, "timeline")
    assert watch(postmaster_started_at=1).disturbance(1, None) == Disturbance(LONG_AGO, "restart")


def test_timeline_that_cannot_be_asked_for_is_no_other_one() -> None:
    assert watch().disturbance(None, None) is None
    assert watch(timeline=None).disturbance(7, None) is None


def test_restart_counts_from_the_start_and_whatever_came_later_from_then() -> None:
    young = Watched(NOW, started_at=NOW - MINUTE, ticked_at=NOW, period_ms=MINUTE)

    assert young.undisturbed_since(None, None) == NOW - MINUTE
    assert watch(disturbed_at=NOW - 5).undisturbed_since(1, None) == NOW - 5
    assert watch(disturbed_at=LONG_AGO - 5).undisturbed_since(1, None) == LONG_AGO


def test_what_no_tick_has_noted_yet_lasts_until_now() -> None:
    """A command by hand, or a part that waited for long, is no tick."""
    assert watch(ticked_at=NOW - 4 * MINUTE).undisturbed_since(1, None) == NOW
    assert watch().undisturbed_since(2, None) == NOW
    assert watch().undisturbed_since(None, None) == LONG_AGO


def test_server_that_was_started_in_the_future_is_no_reason_to_wait_for_it() -> None:
    """Its clock was set back since: a tick notes the new start as of now, once."""
    ahead = Watched(
        NOW,
        started_at=NOW + 10**9,
        ticked_at=NOW - MINUTE,
        period_ms=MINUTE,
        postmaster_started_at=LONG_AGO,
    )

    assert ahead.disturbance(None, None) == Disturbance(NOW, "restart")
    assert ahead.undisturbed_since(None, None) is None
