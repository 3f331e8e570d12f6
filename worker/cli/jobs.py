"""One job by hand: over the scopes that are named, by the flags or by the policy file."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from worker.cli import options
from worker.cli.asked import Asked, job_options, policy_of
from worker.cli.by_hand import perform
from worker.cli.enqueue import place
from worker.cli.target import no_policy


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
@job_options("reap")
def reap(
    asked: Asked, max_age: timedelta | None, keep: int | None, policy_file: Path | None
) -> int:
    """Delete finished agents that a retention policy names, and queue their transcripts' release.

    The flags take the place of the policy file's ages. With neither, nothing is deleted.
    """
    return _carry_out("reap", asked, policy_file, max_age=max_age, keep=keep)


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
@job_options("flip_stale_running")
def flip_stale_running(
    asked: Asked, stale_after: timedelta | None, policy_file: Path | None
) -> int:
    """Mark running agents whose writer fell silent as failed.

    The flag takes the place of the policy file's ages. With neither, nothing is changed.
    """
    return _carry_out("flip_stale_running", asked, policy_file, stale_running_max_age=stale_after)


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
@job_options("reconcile_parked")
def reconcile_parked(
    asked: Asked, stale_claim_after: timedelta | None, policy_file: Path | None
) -> int:
    """Let parked agents follow their approval checkpoints.

    Rows whose approval expired or vanished fail. With an age from the flag, or else from the
    policy file, abandoned resume claims are undone as well, and rows that were approved and never
    resumed fail.
    """
    return _carry_out("reconcile_parked", asked, policy_file, stale_claim_max_age=stale_claim_after)


@click.command(
    epilog="Example: sema-maintenance release-sessions --all-scopes --yes",
    short_help="Delete the transcripts of agents that are gone.",
)
@job_options("release_sessions")
def release_sessions(asked: Asked) -> int:
    """Delete the transcripts of agents that are gone, once their release is due."""
    return _carry_out("release_sessions", asked)


@click.command(
    epilog="Example: sema-maintenance drain-harvest --all-scopes --yes",
    short_help="Count memory-harvest rejections.",
)
@job_options("drain_harvest")
def drain_harvest(asked: Asked) -> int:
    """Count the memory-harvest rejections that the server wrote down, and warn of them.

    Each counts once, however often this runs. Rows counted long ago are deleted.
    """
    return _carry_out("drain_harvest", asked)


@click.command(
    epilog="Example: sema-maintenance housekeeping",
    short_help="Keep the worker's own tables small.",
)
@options.as_json
def housekeeping(as_json: bool) -> int:
    """Add up the journal and delete runs and requests past their retention.

    It touches nothing but the worker's own tables, knows no scopes, and changes no count.
    """
    everything = Asked(None, confirmed=True, dry_run=False, overrides=(), as_json=as_json)
    return _carry_out("housekeeping", everything)


def _carry_out(job: str, asked: Asked, policy_file: Path | None = None, **arms: Any) -> int:
    policy = policy_of(asked, policy_file, **arms) if arms else no_policy
    if not asked.enqueue:
        flags = {} if policy_file is None else {"policy_file": str(policy_file)}
        return perform(job, asked, policy, arms, flags)
    if policy_file is not None:
        raise click.UsageError(
            "--policy and --enqueue contradict each other: the worker has a policy file of its "
            "own; give the ages by their flags, or leave them to the worker."
        )
    return place(job, asked, policy, arms)
