"""One job by hand: over the scopes that are named, by the flags or by the policy file."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from worker.cli import options, show
from worker.cli.failures import DONE, FAILED, complain, say
from worker.cli.target import finishing_the_batch, ledger, no_policy, requested_by

if TYPE_CHECKING:
    from config.policy import Policy
    from config.settings import Settings
    from store.runs import Run
    from worker.context import Process

# What a policy has to name so that the job does anything; a job that is not here always may.
_ARMS: Final[dict[str, tuple[str, ...]]] = {
    "reap": ("max_age", "keep"),
    "flip_stale_running": ("stale_running_max_age",),
}
_REMEDY: Final = {
    "reap": "give --max-age or --keep, or name a policy file that does",
    "flip_stale_running": "give --stale-after, or name a policy file that does",
}
_ALWAYS_SHOWN: Final[dict[str, tuple[str, ...]]] = {
    "reap": ("max_age", "keep"),
    "flip_stale_running": ("flipped",),
    "release_sessions": ("released",),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options that all jobs share say. `scopes` None: every scope there is."""

    scopes: tuple[str, ...] | None
    confirmed: bool
    dry_run: bool
    overrides: tuple[str, ...]
    as_json: bool


def job_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options of every job, as one argument `asked`."""

    @click.option(
        "--scope",
        "scopes",
        type=options.Scope(),
        multiple=True,
        metavar="S",
        help="Work on this scope; may be repeated.",
    )
    @click.option("--all-scopes", is_flag=True, help="Work on every scope of the ledger.")
    @click.option("--yes", is_flag=True, help="Do not ask whether all scopes are meant.")
    @click.option("--dry-run", is_flag=True, help="Only say what would be done; writes nothing.")
    @click.option(
        "--override",
        "overrides",
        type=options.Guard(),
        multiple=True,
        metavar="GUARD",
        help=f"Lift a guard for this run, on record; may be repeated: "
        f"{', '.join(options.GUARDS)}, or all.",
    )
    @options.as_json
    @functools.wraps(command)
    def wrapped(
        scopes: tuple[str, ...],
        all_scopes: bool,
        yes: bool,
        dry_run: bool,
        overrides: tuple[str, ...],
        as_json: bool,
        **own: Any,
    ) -> int:
        if all_scopes and scopes:
            raise click.UsageError("--scope and --all-scopes contradict each other; give one.")
        if not all_scopes and not scopes:
            raise click.UsageError("no scope is named; give --scope S, or --all-scopes for each.")
        if all_scopes and not (yes or dry_run or sys.stdin.isatty()):
            raise click.UsageError("--all-scopes needs --yes where nobody can be asked.")
        asked = Asked(
            scopes=None if all_scopes else tuple(dict.fromkeys(scopes)),
            confirmed=yes or not all_scopes,
            dry_run=dry_run,
            overrides=tuple(dict.fromkeys(overrides)),
            as_json=as_json,
        )
        return command(asked=asked, **own)

    return wrapped


@click.command(
    epilog="Example: sema-maintenance reap --scope tenant/acme --max-age 30d --dry-run",
    short_help="Delete finished agents by retention policy.",
)
@click.option(
    "--max-age",
    type=options.Duration(),
    metavar="AGE",
    help="Delete what settled longer ago than this, such as 30d.",
)
@click.option(
    "--keep",
    type=options.Count(),
    metavar="N",
    help="Delete all but the newest N finished rows of a scope.",
)
@options.policy_file
@job_options
def reap(
    asked: Asked, max_age: timedelta | None, keep: int | None, policy_file: Path | None
) -> int:
    """Delete finished agents that a retention policy names, and queue their transcripts' release.

    The flags take the place of the policy file's ages. With neither, nothing is deleted.
    """
    return _perform("reap", asked, _policy(policy_file, max_age=max_age, keep=keep))


@click.command(
    epilog="Example: sema-maintenance flip-stale-running --all-scopes --stale-after 15m --dry-run",
    short_help="Fail running agents whose writer fell silent.",
)
@click.option(
    "--stale-after",
    type=options.Duration(),
    metavar="AGE",
    help="Silent for longer than this is stale, such as 15m; a live writer is heard every 60 s.",
)
@options.policy_file
@job_options
def flip_stale_running(
    asked: Asked, stale_after: timedelta | None, policy_file: Path | None
) -> int:
    """Mark running agents whose writer fell silent as failed.

    The flag takes the place of the policy file's ages. With neither, nothing is changed.
    """
    policy = _policy(policy_file, stale_running_max_age=stale_after)
    return _perform("flip_stale_running", asked, policy)


@click.command(
    epilog="Example: sema-maintenance reconcile-parked --scope tenant/acme --stale-claim-after 15m",
    short_help="Let parked agents follow their checkpoints.",
)
@click.option(
    "--stale-claim-after",
    type=options.Duration(),
    metavar="AGE",
    help="A resume claim older than this was abandoned, such as 15m.",
)
@options.policy_file
@job_options
def reconcile_parked(
    asked: Asked, stale_claim_after: timedelta | None, policy_file: Path | None
) -> int:
    """Let parked agents follow their approval checkpoints.

    Rows whose approval expired or vanished fail. With an age from the flag, or else from the
    policy file, abandoned resume claims are undone as well, and rows that were approved and never
    resumed fail.
    """
    policy = _policy(policy_file, stale_claim_max_age=stale_claim_after)
    return _perform("reconcile_parked", asked, policy)


@click.command(
    epilog="Example: sema-maintenance release-sessions --all-scopes --yes",
    short_help="Delete the transcripts of agents that are gone.",
)
@job_options
def release_sessions(asked: Asked) -> int:
    """Delete the transcripts of agents that are gone, once their release is due."""
    return _perform("release_sessions", asked, no_policy)


def _policy(file: Path | None, **flags: Any) -> Callable[[Settings], Policy]:
    """The flags as a policy for every scope if any is given, else the policy file."""

    def read(settings: Settings) -> Policy:
        from config.policy import Policy, ScopePolicy, load_policy

        path = file or settings.policy_file
        from_file = Policy.empty() if path is None else load_policy(path)
        if all(value is None for value in flags.values()):
            return from_file
        from_flags = Policy.of(ScopePolicy(**flags), source="flags")
        return replace(from_flags, release_delay=from_file.release_delay)

    return read


def _perform(job: str, asked: Asked, policy_for: Callable[[Settings], Policy]) -> int:
    from store import preflight

    needs = preflight.JOBS[job]
    with ledger(preflight.dry(needs) if asked.dry_run else needs, policy_for) as process:
        if asked.scopes is not None and job != "release_sessions":
            _doubt_scopes(process, asked.scopes)
        if _names_nothing(process.policy, job, asked.scopes):
            _show_nothing(process.policy, job, asked)
            return DONE
        if asked.dry_run:
            return _dry_run(process, job, asked)
        question = f"Run {job} over every scope of this database?"
        if not asked.confirmed and not click.confirm(question, err=True):
            complain("nothing was done")
            return FAILED
        return _run(process, job, asked)


def _doubt_scopes(process: Process, scopes: Sequence[str]) -> None:
    from store.overview import scopes_without_rows

    for scope in scopes_without_rows(process.database, scopes):
        say(f"note: scope {show.printable(scope)!r} holds no agents")


def _names_nothing(policy: Policy, job: str, scopes: Sequence[str] | None) -> bool:
    arms = _ARMS.get(job)
    if arms is None:
        return False
    if scopes is None:
        layers = [policy.defaults, *(override.sets for override in policy.overrides)]
        return not any(layer.get(arm) is not None for layer in layers for arm in arms)
    resolved = [policy.for_scope(scope) for scope in scopes]
    return not any(getattr(each, arm) is not None for each in resolved for arm in arms)


def _show_nothing(policy: Policy, job: str, asked: Asked) -> None:
    where = "any scope" if asked.scopes is None else "what was named"
    reason = (
        f"the policy ({policy.source}) sets no {' and no '.join(_ARMS[job])} for {where}, so "
        f"nothing was done; {_REMEDY[job]}"
    )
    if asked.as_json:
        state = {"job": job, "dry_run": asked.dry_run, "state": "nothing_asked", "reason": reason}
        show.document(state | ({"planned": [], "rows": 0} if asked.dry_run else {"report": {}}))
    else:
        click.echo(f"{job}: {reason}")


def _dry_run(process: Process, job: str, asked: Asked) -> int:
    from worker.frame import dry_run

    planned = dry_run(process, job, asked.scopes, process.policy)
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


def _run(process: Process, job: str, asked: Asked) -> int:
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
        )
    return _show_run(run, as_json=asked.as_json)


def _show_run(run: Run, *, as_json: bool) -> int:
    report = dict.fromkeys(_ALWAYS_SHOWN.get(run.job, ()), 0) | run.report
    if as_json:
        show.document(asdict(replace(run, report=report)))
    else:
        took = show.span((run.finished_at or run.started_at) - run.started_at)
        click.echo(f"{run.job} {run.state} in {took}: {show.counts(report)}")
    if run.error is not None:
        complain(f"{run.job} failed: {run.error}")
    # By hand nothing but a signal ends a run with work left.
    if run.more:
        complain(f"{run.job} was stopped early; what is left waits for the next run")
    return FAILED if run.state != "succeeded" or run.more else DONE
