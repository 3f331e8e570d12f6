"""Why a row that is due is passed over, when that ends, and what a person does about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from store.guards import GUARDS_OF


@dataclass(frozen=True, slots=True)
class PassedOver:
    """One cause: what it means, and when it ends or what ends it, each as a phrase.

    `guard`: the name by which `--override` lifts it for one run; None: nothing lifts it.
    `open_ended`: nobody can say of one row when it ends.
    """

    meaning: str
    ends: str
    guard: str | None = None
    open_ended: bool = False

    def in_words(self, job: str) -> str:
        """All of it, as a job's run or its command is told of it."""
        lifted = f" (--override {self.guard})" if self.guard in GUARDS_OF.get(job, ()) else ""
        return f"{self.meaning}; {self.ends}{lifted}"


# Every reason under which a job counts rows as skipped.
PASSED_OVER: Final[Mapping[str, PassedOver]] = {
    "paused": PassedOver(
        "a person has paused the job there",
        "`sema-maintenance status` says who and why, and `resume` lets it go on",
    ),
    "hold": PassedOver(
        "a hold lies on the row or on its scope",
        "`sema-maintenance holds list` shows it, and `holds release` ends it",
    ),
    "undo": PassedOver(
        "a row that shares the transcript can still be restored",
        "this ends with its undo window, or with `sema-maintenance erase --scope S`",
    ),
    "sighting": PassedOver(
        "not yet seen as it is for long enough by the database's clock",
        "ticks of the schedule see to that",
        "sightings",
    ),
    "outage": PassedOver(
        "the database or the schedule was away, so that silence proves nothing",
        "this ends when a whole stale age has passed since",
        "outage",
        open_ended=True,
    ),
    "silence": PassedOver(
        "no running row anywhere was renewed lately, which is hardly so of all writers at once",
        "this ends by itself, but only the schedule's own ticks end such a hold and no command "
        "does",
        "outage",
        open_ended=True,
    ),
    "mass": PassedOver(
        "most of all running rows fell silent at once, which is hardly so",
        "this ends by itself, but only the schedule's own ticks end such a hold and no command "
        "does",
        "outage",
        open_ended=True,
    ),
    "fresh_flip": PassedOver(
        "marked as failed for silence, and its writer may still correct that",
        "this ends when it has been failed for the stale age and its writer does not live",
        "fresh-flips",
    ),
    "implausible_time": PassedOver(
        "settled before 2015 or in the future, which is hardly so",
        "have its writer mend the time",
        "plausible-times",
        open_ended=True,
    ),
    "no_checkpoints": PassedOver(
        "there is not one checkpoint, so that a missing one proves nothing",
        "this ends once there are checkpoints again",
        "plausible-times",
        open_ended=True,
    ),
    "undated_checkpoint": PassedOver(
        "its approval was given and nobody wrote when",
        "mend `updated_at` of the checkpoint",
        open_ended=True,
    ),
    "checkpoint_locked": PassedOver(
        "somebody has its approval at this moment",
        "the next run looks again",
    ),
    "breaker": PassedOver(
        "more rows of its scope are due than one run may change",
        "look whether so many are meant",
        "breakers",
        open_ended=True,
    ),
    "failing": PassedOver(
        "it, or its scope, cannot be read or written",
        "`sema-maintenance history` says why, and the next run tries again",
    ),
}


def lifted_by(reason: str) -> str | None:
    """The guard whose name lifts what is held for this reason, for one run; None: none does."""
    cause = PASSED_OVER.get(reason)
    return None if cause is None else cause.guard


def in_words(job: str, reason: str) -> str:
    """What the reason means and what ends it; the reason itself where only others know it."""
    cause = PASSED_OVER.get(reason)
    return reason if cause is None else cause.in_words(job)
