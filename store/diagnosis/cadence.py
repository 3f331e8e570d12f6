"""The cadence: whether a beat is at work, and whether what it sends is done."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from store.diagnosis.finding import Examined, Finding, error, ok, warning
from store.overview import Slot
from store.runs import clock

_BEAT: Final = "celery -A worker beat    # one is enough; and `celery -A worker worker` beside it"
_MS: Final = timedelta(milliseconds=1)


def ticks(examined: Examined) -> Iterator[Finding]:
    """When each job last ticked and last completed, against its period."""
    periods = examined.deployment.periods
    slots = {
        row["job"]: Slot(row["last_slot"], row["period_ms"])
        for row in examined.tx.rows("list_schedule")
    }
    completed = {
        row["job"]: row["finished_at"]
        for row in examined.tx.rows("last_completed", {"jobs": list(periods)})
    }
    now = clock(examined.tx)
    if not slots:
        yield warning("no tick was ever taken: no beat has been at work here", _BEAT)
        return
    for job, period in periods.items():
        if job not in slots:
            yield error(f"{job} has never ticked, others have: is its beat of this release?", _BEAT)
            continue
        slot = slots[job]
        ago = (now - slot.last_slot) * _MS
        done = (
            "never completed"
            if job not in completed
            else f"last completed {_seconds((now - completed[job]) * _MS)} ago"
        )
        said = f"{job} last ticked {_seconds(ago)} ago, every {_seconds(period)}; {done}"
        if slot.is_late(now, period // _MS):
            yield error(f"{said}: no beat is at work, or no worker takes its ticks", _BEAT)
        elif job not in completed or Slot(completed[job], slot.period_ms).is_late(
            now - _A_PART // _MS, period // _MS
        ):
            yield warning(
                f"{said}: it ticks and is not done", f"sema-maintenance history --job {job}"
            )
        else:
            yield ok(said)


# What one part of a run may take beside.
_A_PART: Final = timedelta(minutes=10)


def _seconds(span: timedelta) -> str:
    seconds = span.total_seconds()
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
