"""Carries out a job here and now, or shows what it would do, and says how it went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import click

from worker.cli import show
from worker.cli.asked import Asked
from worker.cli.failures import DONE, FAILED, complain, say
from worker.cli.named_scopes import doubt_scopes
from worker.cli.pause import concerning, sentences
from worker.cli.target import finishing_the_batch, ledger, requested_by
from worker.wording import counted, span_of_ms

if TYPE_CHECKING:
    from config.policy import Policy
    from config.settings import Settings
    from store.pauses import Pause
    from store.runs import Run
    from worker.context import Process

_REMEDY: Final = {
    "reap": "give --max-age or --keep, or name a policy file that does",
    "flip_stale_running": "give --stale-after, or name a policy file that does",
}
# Of what these work on no agent need be left.
_WITHOUT_AGENTS: Final = ("release_sessions", "drain_harvest")
# How many scopes are named in which a breaker held rows back.
_BREAKERS_NAMED: Final = 5
# What a run counts as passed over, where that is no row.
_PASSED_OVER: Final = {"release_sessions": "transcript", "drain_harvest": "rejection"}
# A complaint of its own says who or what, and where.
_COMPLAINED_OF: Final = ("paused", "breaker")
_ALWAYS_SHOWN: Final[dict[str, tuple[str, ...]]] = {
    "reap": ("max_age", "keep"),
    "flip_stale_running": ("flipped",),
    "release_sessions": ("released",),
}


def perform(
    job: str,
    asked: Asked,
    policy_for: Callable[[Settings], Policy],
    arms: Mapping[str, timedelta | int | None] = MappingProxyType({}),
    flags: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Do a job here and now; gives the exit code. `arms`: those that the flags name.

    `flags`: what else was given and is to be on record.
    """
    from config.requested import names_nothing
    from store import needs

    needed = needs.dry_run if asked.dry_run else needs.by_hand
    with ledger(lambda settings: needed(job, settings.release_backend), policy_for) as process:
        if asked.scopes is not None and job not in _WITHOUT_AGENTS:
            doubt_scopes(process, asked.scopes)
        if names_nothing(process.policy, job, asked.scopes):
            _show_nothing(process.policy, job, asked)
            return DONE
        if asked.dry_run:
            return _dry_run(process, job, asked)
        if not asked.is_meant(f"Run {job} over every scope of this database?"):
            return FAILED
        return _run(process, job, asked, arms, flags)


def _show_nothing(policy: Policy, job: str, asked: Asked) -> None:
    from config.requested import NEEDED_ARMS

    where = "any scope" if asked.scopes is None else "what was named"
    reason = (
        f"the policy ({policy.source}) sets no {' and no '.join(NEEDED_ARMS[job])} for {where}, so "
        f"nothing was done; {_REMEDY[job]}"
    )
    if asked.as_json:
        state = {"job": job, "dry_run": asked.dry_run, "state": "nothing_asked", "reason": reason}
        show.document(state | ({"planned": [], "rows": 0} if asked.dry_run else {"report": {}}))
    else:
        click.echo(f"{job}: {reason}")


def _dry_run(process: Process, job: str, asked: Asked) -> int:
    from worker.manual import dry_run

    with show.progress(lambda: f"{job}: looking for what is due"):
        planned = dry_run(process, job, asked.scopes, process.policy, asked.overrides)
    for sentence in sentences(concerning(process, job, asked.scopes)):
        say(f"note: {sentence}")
    passed: Counter[str] = Counter()
    for each in planned:
        if each.arm == "skipped" and each.cause not in {None, "paused"}:
            passed[str(each.cause)] += each.rows
    _note_passed_over(job, passed)
    rows = sum(each.rows for each in planned if each.arm != "skipped")
    if asked.as_json:
        plans = [asdict(each) for each in planned]
        show.document({"job": job, "dry_run": True, "rows": rows, "planned": plans})
        return DONE
    if not planned:
        click.echo(f"{job}: nothing would be done")
        return DONE
    show.table(
        ("SCOPE", "WHAT", "CAUSE", "ROWS", "OLDEST DUE FOR"),
        [
            (each.scope, each.arm, each.cause, each.rows, span_of_ms(each.oldest_ms))
            for each in planned
        ],
    )
    click.echo(f"{job}: {counted(rows, 'row')} in all; a dry run, so nothing was done")
    return DONE


def _run(
    process: Process,
    job: str,
    asked: Asked,
    arms: Mapping[str, timedelta | int | None],
    flags: Mapping[str, str],
) -> int:
    from config.requested import arms_in_words
    from store.errors import StoreError
    from store.overview import progress
    from worker.manual import by_hand

    asker = requested_by()

    def so_far() -> str | None:
        try:
            made = progress(process.database, job, asker)
        except StoreError:
            return None
        if made is None:
            return "looking for what is due"
        return (
            f"{job}: {counted(made.rows, 'row')}, through with {counted(made.scopes_over, 'scope')}"
        )

    with finishing_the_batch(process), show.progress(so_far):
        run = by_hand(
            process,
            job,
            asked.scopes,
            policy=process.policy,
            requested_by=asker,
            overrides=asked.overrides,
            asked={
                "scopes": None if asked.scopes is None else [*asked.scopes],
                "policy": arms_in_words(arms) or None,
                **({"flags": {**flags}} if flags else {}),
            },
        )
    return told(process, run, asked.scopes, as_json=asked.as_json)


def told(
    process: Process,
    run: Run,
    scopes: Sequence[str] | None,
    *,
    as_json: bool,
    then: str = "what is left waits for the next run",
) -> int:
    """Say how a run in these scopes went, and what held it back; gives the exit code.

    `then`: what becomes of what is left where it came to no end.
    """
    job, report = run.job, dict.fromkeys(_ALWAYS_SHOWN.get(run.job, ()), 0) | run.report
    paused: list[Pause] = []
    try:
        paused = concerning(process, job, scopes)
    finally:
        # WHY in any case: what was done is told, though nobody can say what is paused by now.
        if as_json:
            show.document(asdict(replace(run, report=report)))
        else:
            click.echo(f"{_outcome(run, scopes, paused)}: {show.counts(report)}")
    code = _say_how(run, stopped=process.stopping.is_set(), then=then)
    tripped = "skipped/breaker" in run.report
    if tripped:
        complain(_tripped(process, run))
    # WHY only a note otherwise: all that there was to do is done.
    kept = "skipped/paused" in run.report or _is_all(scopes, paused)
    for sentence in sentences(paused):
        if kept:
            complain(sentence)
        else:
            say(f"note: {sentence}")
    if "skipped/paused" in run.report and not paused:
        complain(f"{job} was paused while it ran, and is not any more; run it again")
    return FAILED if tripped or kept else code


def _tripped(process: Process, run: Run) -> str:
    """Which breakers left rows of the run alone, how many, and what lets them go."""
    from store.breakers import held_back

    scopes, more = held_back(process.database, run.run_id, _BREAKERS_NAMED)
    named = ", ".join(repr(show.printable(scope)) for scope in scopes)
    others = f" and {counted(more, 'more scope')}" if more else ""
    where = f" ({named}{others})" if named else ""
    left = counted(run.report["skipped/breaker"], "row")
    command = run.job.replace("_", "-")
    return (
        f"breakers{where} left {left} alone; look whether so many are meant, and let them go with "
        f"`sema-maintenance {command} --scope S --override breakers`"
    )


def _outcome(run: Run, scopes: Sequence[str] | None, paused: Sequence[Pause]) -> str:
    """How the run ended, in the first words of all: where it was paused, nothing succeeded."""
    took = span_of_ms((run.finished_at or run.started_at) - run.started_at)
    how = f"{run.state} in {took}"
    if run.state != "succeeded" or not (paused or "skipped/paused" in run.report):
        return f"{run.job} {how}"
    if _is_all(scopes, paused):
        return f"{run.job} paused"
    if "skipped/paused" not in run.report:
        return f"{run.job} {how}"
    return f"{run.job} paused in part, elsewhere {how}"


def _is_all(scopes: Sequence[str] | None, paused: Sequence[Pause]) -> bool:
    """Whether the job is paused in all that was asked for."""
    where = {each.scope for each in paused}
    return None in where or (scopes is not None and {*scopes} <= where)


def _note_passed_over(job: str, passed: Mapping[str, int]) -> None:
    """What guards and holds kept back, a line for each reason, with what it means and ends it."""
    from worker.passed_over import in_words

    for reason, rows in passed.items():
        what = counted(rows, _PASSED_OVER.get(job, "row"))
        say(f"note: {what} passed over ({reason}): {in_words(job, reason)}")


def _say_how(run: Run, *, stopped: bool, then: str) -> int:
    """What went wrong and what was passed over; gives the exit code."""
    report = run.report
    if run.error is not None:
        what = "was not done in full" if run.state == "partial" else "failed"
        complain(f"{run.job} {what}: {run.error}")
    failed, dead = (report.get(arm, 0) for arm in ("failed", "dead"))
    if run.job != "release_sessions":
        failed = dead = 0
    if failed > dead:
        again = counted(failed - dead, "release failed and is", "releases failed and are")
        complain(f"{again} tried again; `releases list` says why")
    if dead:
        last = "failed for the last time and"
        complain(
            f"{counted(dead, f'release {last} is', f'releases {last} are')} dead; `releases list` "
            "says why, and `sema-maintenance releases rearm --state dead` lets them be tried "
            "again once that is mended"
        )
    skips = {k.removeprefix("skipped/"): n for k, n in report.items() if k.startswith("skipped/")}
    _note_passed_over(run.job, {k: n for k, n in skips.items() if k not in _COMPLAINED_OF})
    if run.more:
        why = (
            "was stopped early"
            if stopped
            else "came no further in a whole turn, for rows that it passes over or that another "
            "run has in hand; MAINT_JOB_BUDGET makes turns longer"
        )
        complain(f"{run.job} {why}; {then}")
    return FAILED if run.state != "succeeded" or run.more or failed else DONE
