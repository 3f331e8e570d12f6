"""Stops jobs, everywhere or in scopes, until they are resumed, and says what is stopped."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from worker.cli import options, show
from worker.cli.failures import DONE, FAILED, complain, say
from worker.cli.named_scopes import doubt_scopes, refuse_globs
from worker.cli.target import ledger, requested_by
from worker.wording import counted

if TYPE_CHECKING:
    from store.pauses import Pause
    from worker.context import Process

ALL: Final = "all"
_AUDIT: Final = "audit_memory"
_PAUSABLE: Final = tuple(job for job in options.JOBS if job != _AUDIT)
_WITHOUT_SCOPES: Final = "housekeeping"
_RELEASE: Final = "release_sessions"
# How many pauses of scopes are said one by one to a person.
_SAID: Final = 3


class PausableJobs(click.ParamType[tuple[str, ...]]):
    """A job as its command is called, or `all` for each."""

    name = "job"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """The names that the runs of the jobs bear."""
        if value == ALL:
            return _PAUSABLE
        job = options.Job().convert(value, param, ctx)
        if job == _AUDIT:
            self.fail("audit-memory only looks, so there is nothing to pause.", param, ctx)
        return (job,)

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """The jobs that can be paused, as their commands are called, and `all`."""
        return options.completed([*(j.replace("_", "-") for j in _PAUSABLE), ALL], incomplete)


class PausedJobs(PausableJobs):
    """The same, or a job of another release, which only the pauses in force know."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """The names that the runs of the jobs bear; as it was written, of one not known here."""
        known = value == ALL or value.replace("-", "_") in options.JOBS
        return super().convert(value, param, ctx) if known else (value,)


def _target(jobs: PausableJobs, scope: options.Scope) -> Callable[[Any], Any]:
    """The argument and the option that say what is paused or resumed."""

    def target(command: Any) -> Any:
        return click.argument("jobs", metavar="JOB|all", type=jobs)(
            click.option(
                "--scope",
                "scopes",
                type=scope,
                multiple=True,
                metavar="S",
                help="Only in this scope; may be repeated. Without it: everywhere.",
            )(command)
        )

    return target


@click.command(
    epilog="Example: sema-maintenance pause reap --scope tenant/acme --reason 'restore under way'",
    short_help="Stop a job, everywhere or in a scope.",
)
@_target(PausableJobs(), options.Scope())
@click.option(
    "--reason",
    type=options.Reason(),
    default="",
    metavar="TEXT",
    help="Why, for whoever finds it paused.",
)
@options.as_json
def pause(jobs: tuple[str, ...], scopes: tuple[str, ...], reason: str, as_json: bool) -> int:
    """Stop a job, or all, until it is resumed; everywhere, or in the scopes that are named.

    No batch begins any more, in any worker and by hand. The command waits for the batches in hand:
    once it says "paused", nothing more is done. Ticks go on, and count what they leave alone.
    """
    from store import pauses
    from store.needs import PAUSE

    jobs, named = _checked(jobs, scopes)
    with ledger(PAUSE) as process:
        database = process.database
        refuse_globs(process, named or ())
        placed = pauses.place(database, jobs, named, reason.strip(), requested_by())
        # WHY also what was paused before: whoever asks again wants to know that nothing goes on.
        in_hand = _in_hand(process, jobs, named)
        in_force = pauses.in_force(database, jobs)
        doubt_scopes(process, named or (), "; it is paused all the same, for when there are any")
    there = [each for each in in_force if _meant(each, named)]
    before = [each for each in there if each not in placed]
    if as_json:
        lists = {"paused": placed, "paused_before": before}
        document = {name: [asdict(each) for each in found] for name, found in lists.items()}
        show.document({**document, "in_hand": in_hand})
    else:
        for each in before:
            click.echo(f"{said(each)}; that stays as it is")
        for each in placed:
            where = "everywhere" if each.scope is None else f"in scope {_named(each.scope)}"
            click.echo(f"paused: {command_of(each.job)} {where}")
    for problem in in_hand:
        complain(problem)
    return FAILED if in_hand else DONE


def _in_hand(process: Process, jobs: Sequence[str], scopes: Sequence[str] | None) -> list[str]:
    """What is still going on that began before the pause, in a sentence each."""
    from store import pauses

    say("no batch begins any more; waiting for those in hand")
    problems = [
        f"{command_of(job)} is paused and no batch of it begins any more, but one that began "
        "before is still under way; wait for it with the same command"
        for job in jobs
        if not pauses.await_batches(process.database, job)
    ]
    if _RELEASE in jobs and (left := pauses.await_claims(process.database, scopes)) is not None:
        claimed = counted(left.transcripts, "transcript was", "transcripts were")
        problems.append(
            f"release-sessions is paused, but {claimed} claimed before and may yet be deleted "
            f"until {show.when(left.until)} UTC; wait for that with the same command"
        )
    return problems


@click.command(
    epilog="Example: sema-maintenance resume reap --scope tenant/acme",
    short_help="Let a paused job go on.",
)
# WHY of any size: what is paused must never stay so because of its name.
@_target(PausedJobs(), options.Scope(of_any_size=True))
@options.as_json
def resume(jobs: tuple[str, ...], scopes: tuple[str, ...], as_json: bool) -> int:
    """Let a paused job, or all, go on; everywhere, or in the scopes that are named.

    What is paused in a scope by itself stays so until it is resumed there. What was left alone
    meanwhile is found by the next tick.
    """
    from store import pauses
    from store.needs import RESUME

    jobs, named = _checked(jobs, scopes)
    with ledger(RESUME) as process:
        jobs = _of_any_release(process, jobs)
        lifted = pauses.lift(process.database, jobs, named, requested_by())
        left = pauses.in_force(process.database, jobs)
    still = [each for each in left if each.scope is None] if named else []
    if as_json:
        lists = {"resumed": lifted, "still_paused": left}
        show.document({name: [asdict(each) for each in found] for name, found in lists.items()})
    else:
        for each in lifted:
            where = "" if each.scope is None else f" in scope {_named(each.scope)}"
            click.echo(f"resumed: {command_of(each.job)}{where}")
        _say_not_paused(jobs, named, lifted)
    if not still:
        for sentence in sentences(left):
            say(f"note: {sentence}")
    for each in still:
        complain(f"{said(each)}, and so in every scope; {_remedy(each)}")
    return FAILED if still else DONE


def _say_not_paused(
    jobs: Sequence[str], named: Sequence[str] | None, lifted: Collection[Pause]
) -> None:
    gone = {(each.job, each.scope) for each in lifted}
    # WHY not of `all`: nobody means that every job is paused.
    if len(jobs) > 1:
        if not lifted:
            click.echo("no job was paused there; nothing was changed")
        return
    for scope in [None] if named is None else named:
        if (jobs[0], scope) not in gone:
            where = "everywhere" if scope is None else f"in scope {_named(scope)} by itself"
            click.echo(f"{command_of(jobs[0])} was not paused {where}; nothing was changed")


def _checked(
    jobs: tuple[str, ...], scopes: tuple[str, ...]
) -> tuple[tuple[str, ...], list[str] | None]:
    """The jobs that the scopes make sense for, and the scopes; None: everywhere."""
    if not scopes:
        return jobs, None
    if jobs == (_WITHOUT_SCOPES,):
        raise click.UsageError("housekeeping knows no scopes; leave --scope out.")
    return tuple(j for j in jobs if j != _WITHOUT_SCOPES), sorted({*scopes})


def _of_any_release(process: Process, jobs: tuple[str, ...]) -> tuple[str, ...]:
    """The jobs that are meant, with those that only another release knows and that are paused."""
    from store import pauses

    foreign = {p.job for p in pauses.in_force(process.database)} - {*options.JOBS}
    if len(jobs) > 1:
        return tuple(sorted({*jobs} | foreign))
    [meant] = jobs
    if meant in options.JOBS:
        return jobs
    found = tuple(sorted(job for job in foreign if command_of(job) == command_of(meant)))
    if not found:
        raise click.UsageError(
            f"there is no job {meant!r}, and none of that name is paused; "
            f"{options.or_meant(meant.replace('-', '_'), options.JOBS)}"
        )
    return found


def _meant(pause: Pause, named: Sequence[str] | None) -> bool:
    return pause.scope is None if named is None else pause.scope in named


def concerning(process: Process, job: str, scopes: Sequence[str] | None) -> list[Pause]:
    """The pauses in force that keep a run over these scopes, or over all, from some of its work."""
    from store import pauses

    return [
        each
        for each in pauses.in_force(process.database, [job])
        if scopes is None or each.scope is None or each.scope in scopes
    ]


def sentences(pauses: Sequence[Pause]) -> Iterable[str]:
    """Who paused what, when and why, and how to go on; some of many."""
    for each in pauses[:_SAID]:
        yield f"{said(each)}; {_remedy(each)}"
    if (more := len(pauses) - _SAID) > 0:
        others = counted(more, "more pause is", "more pauses are")
        yield f"{others} in force; `sema-maintenance status` lists them"


def said(pause: Pause) -> str:
    """Who paused what, when and why."""
    where = "everywhere" if pause.scope is None else f"in scope {_named(pause.scope)}"
    why = f": {show.printable(pause.reason)}" if pause.reason else ", who gave no reason"
    return (
        f"{command_of(pause.job)} is paused {where} since {show.when(pause.paused_at)} UTC by "
        f"{show.printable(pause.paused_by)}{why}"
    )


def _remedy(pause: Pause) -> str:
    scope = "" if pause.scope is None else f" --scope {shlex.quote(show.printable(pause.scope))}"
    return f"`sema-maintenance resume {command_of(pause.job)}{scope}` lets it go on"


def _named(scope: str) -> str:
    return repr(show.printable(scope))


def command_of(job: str) -> str:
    """A job as its command is called."""
    return job.replace("_", "-")
