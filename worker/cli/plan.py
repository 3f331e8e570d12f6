"""`plan` and `apply`: what a job would do, written down row by row; and that and no more, done."""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import closing
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from store.guards import not_lifted
from worker.cli import options, show
from worker.cli.asked import Asked, named_scopes, policy_of
from worker.cli.by_hand import told
from worker.cli.failures import DONE, FAILED, say
from worker.cli.named_scopes import doubt_scopes
from worker.cli.pause import concerning, sentences
from worker.cli.target import finishing_the_batch, ledger, requested_by
from worker.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from worker.plan_file import Header
    from worker.planned import Made

# The flags of each job that can be planned, by the arm that each sets.
_FLAGS: Final = {
    "reap": {"max_age": "--max-age", "keep": "--keep"},
    "flip_stale_running": {"stale_running_max_age": "--stale-after"},
    "reconcile_parked": {"stale_claim_max_age": "--stale-claim-after"},
    "release_sessions": {},
}
_NO_PLAN: Final = {
    "drain_harvest": "it changes no row of the ledger and no transcript; it counts what it drains",
    "housekeeping": "it touches nothing but the worker's own tables",
    "audit_memory": "it changes nothing",
}


class _Planned(options.Job):
    """A job; a shell is offered those that can be planned."""

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Their commands."""
        return options.completed([job.replace("_", "-") for job in _FLAGS], incomplete)


@click.command(
    epilog="Example: sema-maintenance plan reap --all-scopes --max-age 30d -o reap.plan",
    short_help="Write down what a job would do, row by row.",
)
@click.argument("job", type=_Planned())
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="Where the plan is to be; only its owner may read it.",
)
@click.option("--force", is_flag=True, help="Put it in the place of a file that is there.")
@options.scopes("Plan this scope.")
@click.option("--all-scopes", is_flag=True, help="Plan every scope of the ledger.")
@click.option("--max-age", type=options.Duration(), metavar="AGE", help="As of reap.")
@click.option("--keep", type=options.Count(), metavar="N", help="As of reap.")
@click.option(
    "--stale-after", type=options.Duration(), metavar="AGE", help="As of flip-stale-running."
)
@click.option(
    "--stale-claim-after", type=options.Duration(), metavar="AGE", help="As of reconcile-parked."
)
@options.policy_file
@options.overrides(
    None, "Plan as if this guard were lifted, as by the job; apply asks for it again."
)
@options.as_json
def plan(
    job: str,
    path: Path,
    force: bool,
    scopes: tuple[str, ...],
    all_scopes: bool,
    max_age: timedelta | None,
    keep: int | None,
    stale_after: timedelta | None,
    stale_claim_after: timedelta | None,
    policy_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> int:
    """Write down what a job would do at this instant, and change nothing.

    The file has a line for each row, sorted, and ends with a digest. Read it, and give it to apply.
    """
    arms = {
        "max_age": max_age,
        "keep": keep,
        "stale_running_max_age": stale_after,
        "stale_claim_max_age": stale_claim_after,
    }
    _refuse_slips(job, arms, overrides)
    asked = Asked(
        scopes=named_scopes(scopes, all_scopes=all_scopes),
        confirmed=True,
        dry_run=True,
        overrides=tuple(dict.fromkeys(overrides)),
        as_json=as_json,
    )
    return _plan(job, path, asked, policy_file, arms, force=force)


def _refuse_slips(
    job: str,
    arms: Mapping[str, object],
    overrides: Sequence[str],
) -> None:
    """Raise UsageError for what no plan can be made of."""
    command = job.replace("_", "-")
    if job not in _FLAGS:
        raise click.UsageError(f"{command} cannot be planned: {_NO_PLAN[job]}.")
    for own in _FLAGS.values():
        for arm, flag in own.items():
            if arms[arm] is not None and arm not in _FLAGS[job]:
                known = " and ".join(_FLAGS[job].values()) or "none of these flags"
                raise click.UsageError(f"{flag} is not for {command}, which has {known}.")
    if problem := not_lifted(job, overrides):
        raise click.UsageError(f"{problem}.")


def _plan(
    job: str,
    path: Path,
    asked: Asked,
    policy_file: Path | None,
    arms: Mapping[str, Any],
    *,
    force: bool,
) -> int:
    from config.requested import names_nothing
    from store import needs
    from worker import plan_file, planned

    plan_file.refuse_existing(path, overwrite=force)
    own = {arm: arms[arm] for arm in _FLAGS[job]}
    with ledger(
        lambda settings: needs.plan(job, settings.release_backend),
        policy_of(asked, policy_file, **own),
    ) as process:
        if job == "release_sessions" and process.settings.release_backend == "none":
            raise click.UsageError(
                "MAINT_RELEASE_BACKEND is none, so that no transcript is deleted from here and "
                "there is nothing to plan."
            )
        if names_nothing(process.policy, job, asked.scopes):
            flags = " or ".join(_FLAGS[job].values())
            raise click.UsageError(
                f"the policy ({process.policy.source}) gives {job} nothing to do there, so that "
                f"there is nothing to plan; give {flags}, or name a policy file that does."
            )
        if asked.scopes is not None and job != "release_sessions":
            doubt_scopes(process, asked.scopes)
        for sentence in sentences(concerning(process, job, asked.scopes)):
            say(f"note: {sentence}")
        rows = 0

        def through(count: int) -> None:
            nonlocal rows
            rows = count

        with show.progress(lambda: f"{job}: {counted(rows, 'row')} planned"):
            made = planned.make(
                process,
                job,
                asked.scopes,
                path,
                from_flags=any(value is not None for value in own.values()),
                overrides=asked.overrides,
                overwrite=force,
                through=through,
            )
    _show_plan(made, path, as_json=asked.as_json)
    return DONE


def _show_plan(made: Made, path: Path, *, as_json: bool) -> None:
    left = {
        cause: n for (arm, cause), n in sorted(made.counts.items(), key=str) if arm == "skipped"
    }
    if as_json:
        show.document(
            {
                **asdict(made.header),
                # WHY decoded: a name need not be text, and JSON is.
                "file": os.fsencode(path).decode(errors="replace"),
                "rows": made.written.rows,
                "digest": made.written.digest,
                "reasons": dict(sorted(made.reasons.items())),
                "left_alone": left,
            }
        )
        return
    job = made.header.job
    if made.reasons:
        show.table(("REASON", "ROWS"), sorted(made.reasons.items()))
    for cause, rows in left.items():
        click.echo(f"left alone for {cause}: {rows}")
    file = show.printable(str(path))
    click.echo(
        f"{job}: {counted(made.written.rows, 'row')} planned in {file}, "
        f"sha256 {made.written.digest}"
    )


@click.command(
    epilog="Example: sema-maintenance apply reap.plan --dry-run",
    short_help="Do what a plan names, and no more.",
)
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--yes", is_flag=True, help="Do not ask whether it is meant.")
@click.option("--dry-run", is_flag=True, help="Only say what would become of it; writes nothing.")
@options.policy_file
@options.overrides(None, "Lift a guard of the plan's job for this run, on record; may be repeated.")
@options.as_json
def apply(
    path: Path,
    yes: bool,
    dry_run: bool,
    policy_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> int:
    """Do what a plan names, each row judged anew in full; a plan only narrows.

    What changed since it was planned is left alone and counted as lost_race. Holds, pauses and
    guards are those of now.
    """
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("apply needs --yes where nobody can be asked.")
    asked = Asked(None, yes, dry_run, tuple(dict.fromkeys(overrides)), as_json)
    return _apply(path, asked, policy_file)


def _apply(path: Path, asked: Asked, policy_file: Path | None) -> int:
    from config import planned as arms
    from config.settings import load_settings
    from store import needs
    from worker import planned
    from worker.plan_file import PlanFile

    file = policy_of(asked, policy_file)(load_settings())
    floors = not {"floors", "all"} & {*asked.overrides}
    of_plan = file

    def judge(header: Header) -> Callable[[str], None]:
        nonlocal of_plan
        if header.job not in _FLAGS:
            raise click.UsageError(f"{path} is a plan of {header.job!r}, which cannot be applied.")
        if problem := not_lifted(header.job, asked.overrides):
            raise click.UsageError(f"{problem}.")
        of_plan = arms.read(header.policy, file, floors=floors)
        return planned.refuse_changed(header, of_plan, file)

    with closing(PlanFile(path, judge)) as opened:
        job = opened.header.job
        needed = needs.plan if asked.dry_run else needs.apply
        with ledger(
            lambda settings: needed(job, settings.release_backend), lambda _: file
        ) as process:
            planned.refuse_foreign(process, opened.header)
            if asked.dry_run:
                became = planned.preview(process, opened, of_plan, asked.overrides)
                for sentence in sentences(concerning(process, job, opened.header.scopes)):
                    say(f"note: {sentence}")
                _show_preview(job, became, as_json=asked.as_json)
                return DONE
            if not asked.is_meant(f"Apply this plan of {job}, {counted(opened.rows, 'row')}?"):
                return FAILED
            rows = 0

            def through(count: int) -> None:
                nonlocal rows
                rows = count

            with (
                finishing_the_batch(process),
                show.progress(
                    lambda: f"{job}: through with {rows:,} of {counted(opened.rows, 'row')}",
                    lambda: rows / opened.rows if opened.rows else None,
                ),
            ):
                run = planned.carry_out(
                    process,
                    opened,
                    of_plan,
                    requested_by=requested_by(),
                    overrides=asked.overrides,
                    through=through,
                )
            return told(
                process,
                run,
                opened.header.scopes,
                as_json=asked.as_json,
                then="apply the plan again for what is left",
            )


def _show_preview(job: str, became: Counter[tuple[str, str, str | None]], *, as_json: bool) -> None:
    rows = [(scope, arm, cause, n) for (scope, arm, cause), n in sorted(became.items(), key=str)]
    done = sum(n for _, arm, _, n in rows if arm not in {"skipped", "lost_race"})
    if as_json:
        names = ("scope", "arm", "cause", "rows")
        planned = [dict(zip(names, row, strict=True)) for row in rows]
        show.document({"job": job, "dry_run": True, "rows": done, "planned": planned})
        return
    if rows:
        show.table(("SCOPE", "WHAT", "CAUSE", "ROWS"), rows)
    click.echo(f"{job}: {counted(done, 'row')} in all; a dry run, so nothing was done")
