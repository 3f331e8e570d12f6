"""Carries out a job here and now, or shows what it would do, and says how it went."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import click

from worker.cli import show
from worker.cli.asked import Asked
from worker.cli.failures import DONE, FAILED, complain, say
from worker.cli.pause import concerning, sentences
from worker.cli.target import finishing_the_batch, ledger, requested_by

if TYPE_CHECKING:
    from config.policy import Policy
    from config.settings import Settings
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
# Nothing is flipped in any scope while one of these lasts.
_HELD_BY_ALL: Final = ("silence", "mass")
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


def doubt_scopes(process: Process, scopes: Sequence[str]) -> None:
    """Note those of the scopes that may be a slip, for no agent is in them."""
    from store.overview import scopes_without_rows

    for scope in scopes_without_rows(process.database, scopes):
        say(f"note: scope {show.printable(scope)!r} holds no agents")


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
    from worker.frame import dry_run

    with show.progress(lambda: f"{job}: looking for what is due"):
        planned = dry_run(process, job, asked.scopes, process.policy, asked.overrides)
    for sentence in sentences(concerning(process, job, asked.scopes)):
        say(f"note: {sentence}")
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
            (each.scope, each.arm, each.cause, each.rows, show.span(each.oldest_ms))
            for each in planned
        ],
    )
    click.echo(f"{job}: {rows} rows in all; a dry run, so nothing was done")
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
    from worker.frame import by_hand

    asker = requested_by()

    def so_far() -> str | None:
        try:
            made = progress(process.database, job, asker)
        except StoreError:
            return None
        if made is None:
            return "looking for what is due"
        return f"{job}: {made.rows} rows, through with {made.scopes_over} scopes"

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


def told(process: Process, run: Run, scopes: Sequence[str] | None, *, as_json: bool) -> int:
    """Say how a run in these scopes went, and what held it back; gives the exit code."""
    job = run.job
    code = _show_run(run, as_json=as_json, stopped=process.stopping.is_set())
    tripped = "skipped/breaker" in run.report
    if tripped:
        complain(_tripped(process, run))
    paused = concerning(process, job, scopes)
    for sentence in sentences(paused):
        complain(sentence)
    if "skipped/paused" in run.report and not paused:
        complain(f"{job} was paused while it ran, and is not any more; run it again")
    return FAILED if tripped or paused or "skipped/paused" in run.report else code


def _tripped(process: Process, run: Run) -> str:
    """Which breakers left rows of the run alone, how many, and what lets them go."""
    from store.breakers import held_back

    scopes, more = held_back(process.database, run.run_id, _BREAKERS_NAMED)
    named = ", ".join(repr(show.printable(scope)) for scope in scopes)
    where = f" ({named}{f' and {more} more scopes' if more else ''})" if named else ""
    command = run.job.replace("_", "-")
    return (
        f"breakers{where} left {run.report['skipped/breaker']} rows alone; look whether so many "
        f"are meant, and let them go with `sema-maintenance {command} --scope S --override "
        "breakers`"
    )


def _show_run(run: Run, *, as_json: bool, stopped: bool) -> int:
    report = dict.fromkeys(_ALWAYS_SHOWN.get(run.job, ()), 0) | run.report
    if as_json:
        show.document(asdict(replace(run, report=report)))
    else:
        took = show.span((run.finished_at or run.started_at) - run.started_at)
        click.echo(f"{run.job} {run.state} in {took}: {show.counts(report)}")
    if run.error is not None:
        what = "was not done in full" if run.state == "partial" else "failed"
        complain(f"{run.job} {what}: {run.error}")
    failed, dead = (report.get(arm, 0) for arm in ("failed", "dead"))
    if run.job != "release_sessions":
        failed = dead = 0
    if failed > dead:
        complain(f"{failed - dead} releases failed and are tried again; `releases list` says why")
    if dead:
        complain(
            f"{dead} releases failed for the last time and are dead; `releases list` says why, and "
            "`sema-maintenance releases rearm --state dead` lets them be tried again once that is "
            "mended"
        )
    if held := [cause for cause in _HELD_BY_ALL if f"skipped/{cause}" in report]:
        say(
            f"note: what was passed over for {' and '.join(held)} waits until that is over; only "
            "the schedule's own ticks end such a hold after a while, and no command does; "
            "--override outage lifts it"
        )
    if run.more:
        why = (
            "was stopped early"
            if stopped
            else "came no further in a whole turn, for rows that it passes over or that another "
            "run has in hand; MAINT_JOB_BUDGET makes turns longer"
        )
        complain(f"{run.job} {why}; what is left waits for the next run")
    return FAILED if run.state != "succeeded" or run.more or failed else DONE
