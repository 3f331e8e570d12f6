"""What is wrong is said in words, with commands that there are."""

from dataclasses import replace
from datetime import timedelta

import pytest

from memory import BOUNDARY_TAGS
from store.errors import StoreUnavailable
from store.figures import Stopped
from store.overview import Slot
from tests.unit.worker.command_tree import taken
from tests.unit.worker.standings import (
    NEVER,
    NOW_MS,
    WELL,
    away,
    now,
    run,
    standing,
    with_past,
    with_present,
)
from worker.concerns import Concern, concerns
from worker.jobs import JOBS
from worker.paced import Reading
from worker.standing import Standing

EVERYWHERE = Stopped(everywhere=True, scopes=0)
THREE_SCOPES = Stopped(everywhere=False, scopes=3)
STALE = replace(WELL, terminal=Reading({}, None, age_s=16 * 60.0))
BROKEN = replace(WELL, present=Reading(WELL.present.value, str(StoreUnavailable("tenant/oyster"))))
# What is the case, the level, and the words that say it.
CASES: dict[str, tuple[Standing, str, str]] = {
    "away": (away(), "error", "The database has been out of use since 2026-11-30 23:46:54 UTC"),
    "never": (standing(NEVER), "error", "The database has been out of use since 2026-11-30 23:48"),
    "late": (
        with_past(slots={"reap": Slot(NOW_MS - 3_600_000, 60_000)}),
        "error",
        "reap has missed its ticks",
    ),
    "failed": (
        with_past(runs={"reap": [run("reap", "failed"), run("reap")]}),
        "error",
        "The last run of reap failed",
    ),
    "dead": (
        with_present(releases={"dead": 1200}),
        "error",
        "1,200 transcripts could not be released and will not be tried again",
    ),
    "unread": (standing(BROKEN), "error", "The database answers, but not everything can be read"),
    "suspect": (with_present(releases={"suspect": 1}), "warning", "1 transcript set aside"),
    "failing": (with_present(failing={"reap": 2}), "warning", "reap fails in 2 scopes"),
    "guard": (with_present(breakers={"reap": EVERYWHERE}), "warning", "A guard holds reap"),
    "guard of flips": (
        with_present(
            breakers={
                "flip_stale_running": replace(EVERYWHERE, reasons=("silence",), until=NOW_MS + 1)
            }
        ),
        "warning",
        "A guard holds flip_stale_running everywhere",
    ),
    "breaker": (
        with_present(breakers={"reap": THREE_SCOPES}),
        "warning",
        "A breaker holds reap in 3 scopes",
    ),
    "paused": (
        with_present(pauses={"reap": EVERYWHERE}), "warning", "reap is paused everywhere"
    ),
    "paused in part": (
        with_present(pauses={"reap": THREE_SCOPES}), "warning", "reap is paused in 3 scopes"
    ),
    "paused twice": (
        with_present(pauses={"reap": Stopped(everywhere=True, scopes=1)}),
        "warning",
        "reap is paused everywhere, and in 1 scope by itself",
    ),
    "ahead": (
        standing(replace(WELL, pulse=now(timedelta(seconds=1.2)))),
        "warning",
        "The database's clock is 1.2 s ahead of this process's",
    ),
    "behind": (
        standing(replace(WELL, pulse=now(timedelta(minutes=-3)))),
        "warning",
        "The database's clock is 3 min behind this process's",
    ),
    "pinned": (
        with_present(horizon_age=timedelta(hours=3)),
        "warning",
        "A transaction has been open for 3 h",
    ),
    "held": (with_present(holds=2), "note", "2 holds in force"),
    "old": (standing(STALE), "note", "Some figures are old"),
    **{
        tag: (with_past(warnings=(tag,)), "warning", "Agents cannot write memory")
        for tag in BOUNDARY_TAGS
    },
}  # fmt: skip


def everything_said(found: list[Concern]) -> str:
    return " ".join(f"{each.what} {each.meaning} {' '.join(each.commands)}" for each in found)


def test_nothing_is_said_where_all_is_well() -> None:
    assert concerns(standing()) == []


@pytest.mark.parametrize("case", CASES)
def test_each_case_is_one_concern_at_its_level(case: str) -> None:
    found, level, words = CASES[case]

    [concern] = concerns(found)
    assert concern.level == level
    assert concern.what.startswith(words)
    assert concern.meaning.endswith(".")


@pytest.mark.parametrize("case", [case for case in CASES if case != "old"])
def test_each_command_that_is_named_is_one(case: str) -> None:
    """The command line takes it, once SCOPE is replaced by one."""
    [concern] = concerns(CASES[case][0])

    assert concern.commands
    for command in concern.commands:
        program, *arguments = command.split()
        assert program == "sema-maintenance"
        taken(arguments)


@pytest.mark.parametrize(
    "quiet",
    [
        standing(replace(WELL, pulse=now(timedelta(seconds=1)))),
        standing(replace(WELL, pulse=now(timedelta(seconds=-1)))),
        with_present(horizon_age=timedelta(hours=1)),
        with_past(runs={"reap": [run("reap"), run("reap", "failed")]}),
        with_past(runs={"reap": [run("reap", "running")]}),
        with_present(failing={"reap": 0}),
        standing(replace(WELL, terminal=Reading({}, None, age_s=15 * 60.0))),
        standing(replace(WELL, terminal=Reading(None, None, late=True))),
    ],
    ids=["ahead", "behind", "pinned", "failed before", "running", "no scope", "minutes", "not yet"],
)
def test_what_is_just_within_bounds_is_not_said(quiet: Standing) -> None:
    assert concerns(quiet) == []


def test_worst_comes_first() -> None:
    found = concerns(
        with_present(
            holds=1, failing={"reap": 1}, releases={"dead": 1}, pauses={"reap": EVERYWHERE}
        )
    )

    assert [each.level for each in found] == ["error", "warning", "warning", "note"]


def test_no_text_of_an_error_is_repeated() -> None:
    """It may name a scope or a row."""
    assert "oyster" not in everything_said(concerns(standing(BROKEN)))


def test_clock_is_not_judged_while_nobody_can_read_it() -> None:
    skewed = away(replace(WELL, pulse=now(timedelta(minutes=3))))

    assert [each.level for each in concerns(skewed)] == ["error"]


def test_jobs_of_another_release_are_told_of_as_well() -> None:
    """Their figures are in the same database; what is typed next knows only our own."""
    found = concerns(
        with_present(
            breakers={"new_job": THREE_SCOPES},
            failing={"new_job": 1},
            pauses={"new_job": EVERYWHERE},
        )
    )

    assert "new_job" not in JOBS
    assert len(found) == 3
    assert "--override" not in everything_said(found)

    for named in ("a job this release does not know (new_job)", "A job this release does not know"):
        assert named in everything_said(found)
    for command in (command for each in found for command in each.commands):
        assert "new-job" not in command


def test_guard_says_why_it_holds_until_when_and_what_lifts_it() -> None:
    """By what lifts it of the guards that the job has; and who looks first is told where to."""
    until = NOW_MS + 300_000
    held = Stopped(everywhere=True, scopes=0, reasons=("mass", "silence"), until=until)
    [flips] = concerns(with_present(breakers={"flip_stale_running": held}))
    gone = Stopped(everywhere=True, scopes=0, reasons=("no_checkpoints",))
    [parked] = concerns(with_present(breakers={"reconcile_parked": gone}))

    assert "(mass, silence)" in flips.meaning
    assert "at 2026-11-30 23:53:24 UTC, in 5 min, or earlier" in flips.meaning
    lifting = "sema-maintenance flip-stale-running --scope SCOPE --override outage"
    assert [*flips.commands[:3]] == [
        "sema-maintenance status",
        f"{lifting} --dry-run",
        lifting,
    ]
    assert "once its cause is gone" in parked.meaning
    assert parked.commands[2].endswith("reconcile-parked --scope SCOPE --override plausible-times")


@pytest.mark.parametrize("case", ["paused in part", "breaker", "dead", "suspect"])
def test_what_names_the_scopes_comes_before_what_asks_for_one(case: str) -> None:
    [concern] = concerns(CASES[case][0])

    asks = ["SCOPE" in command for command in concern.commands]
    assert asks[0] is False
    assert asks[-1] is True


def test_tag_of_another_release_is_shown() -> None:
    [concern] = concerns(with_past(warnings=("memory_new_tag",)))

    assert "memory_new_tag" in concern.meaning
