"""Makes plans, and carries them out part by part as a run by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Final

from config import planned as arms
from config.errors import shown
from config.policy import Policy
from config.requested import ARMS_OF
from store import runs
from store.agents import PostgresAgentStore
from store.batches import Kind, Stamp
from store.pauses import paused_among
from store.plans import PlannedRow, identity
from tasks import applied, planned
from tasks.context import Context
from tasks.planned import Listing
from worker import frame
from worker.context import Process
from worker.jobs import JOBS, Outcome
from worker.manual import on_record
from worker.plan_file import Header, PlanFile, PlanRefused, Written, write

Scopes = Sequence[str] | None
_TOLD_EVERY: Final = 1000


@dataclass(slots=True)
class Made:
    """A plan that was written, and what a dry run of that instant counts, by (arm, cause)."""

    written: Written
    header: Header
    counts: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)


def make(
    process: Process,
    job: str,
    scopes: Scopes,
    path: Path,
    *,
    from_flags: bool,
    overrides: Sequence[str],
    overwrite: bool,
    through: Callable[[int], None],
) -> Made:
    """Write down what the job would do at this instant. Raises StoreError and PlanRefused.

    Takes no lock and changes nothing. `through` is told now and then how many rows are written.
    """
    database, policy = process.database, process.policy
    with database.transaction(read_only=True) as tx:
        now, ledger = runs.clock(tx), identity(tx)
        paused = paused_among(tx, job, scopes)
    context = process.context(Stamp(now), policy=policy, lifted=overrides)
    header = Header(
        job=job,
        scopes=None if scopes is None else sorted(scopes),
        policy=arms.written(policy),
        from_flags=from_flags,
        overrides=[*overrides],
        planned_at=now,
        ledger=str(ledger),
        ledger_schema=process.settings.ledger_schema,
        release_backend=process.settings.release_backend,
        worker=metadata.version("sema-maintenance"),
    )
    if scopes is None and JOBS[job].due is not None:
        scopes = PostgresAgentStore(database).list_scopes()
    counts: Counter[tuple[str, str | None]] = Counter()
    reasons: Counter[str] = Counter()

    def rows(listings: Iterator[Listing]) -> Iterator[PlannedRow]:
        written = 0
        for listing in listings:
            for each in listing.counts:
                counts[each.arm, each.cause] += each.rows
            for row in listing.rows:
                reasons[row.reason] += 1
                written += 1
                if not written % _TOLD_EVERY:
                    through(written)
                yield row

    with closing(planned.plan(context, job, scopes, paused)) as listings:
        written = write(path, header, rows(listings), overwrite=overwrite)
    return Made(written, header, counts, reasons)


def refuse_foreign(process: Process, header: Header) -> None:
    """Raise PlanRefused where the plan was made on another ledger, or for other transcripts."""
    with process.database.transaction(read_only=True) as tx:
        here = str(identity(tx))
    settings = process.settings
    if (header.ledger, header.ledger_schema) != (here, settings.ledger_schema):
        raise PlanRefused(
            f"the plan was made on another ledger ({shown(header.ledger)}, schema "
            f"{shown(header.ledger_schema)}), and this is {here}, schema {settings.ledger_schema}; "
            "nothing was done; name the database that it was made on, or make a new plan."
        )
    if header.job == "release_sessions" and header.release_backend != settings.release_backend:
        raise PlanRefused(
            "the plan was made where MAINT_RELEASE_BACKEND was "
            f"{shown(header.release_backend)}, and now it is {settings.release_backend}; nothing "
            "was done; make a new plan."
        )


def refuse_changed(header: Header, of_plan: Policy, file: Policy) -> Callable[[str], None]:
    """What raises PlanRefused for a scope to which the policy file gives other arms by now.

    A plan whose arms were given as flags was never the file's, and stays as it is; but the stale
    age by which a reap leaves flipped rows to their writers is the file's in any case.
    """
    names = () if header.from_flags else ARMS_OF.get(header.job, ())
    if header.job == "reap":
        names = (*names, "stale_running_max_age")

    def see(scope: str) -> None:
        then, now = of_plan.for_scope(scope), file.for_scope(scope)
        for name in names:
            if getattr(then, name) != getattr(now, name):
                raise PlanRefused(
                    f"the policy ({file.source}) gives scope {scope!r} another {name} than the "
                    "plan was made with; nothing was done; make a new plan."
                )

    return see


def preview(
    process: Process, plan: PlanFile, policy: Policy, lifted: Sequence[str]
) -> Counter[Kind]:
    """What would become of the plan's rows at this instant, without a lock or a write."""
    became: Counter[Kind] = Counter()
    job = plan.header.job
    with process.database.transaction(read_only=True) as tx:
        now = runs.clock(tx)
        paused = paused_among(tx, job, None)
    context = process.context(Stamp(now), policy=policy, lifted=lifted)
    for rows in plan.pieces():
        became += applied.preview(context, job, rows, paused)
    return became


def carry_out(
    process: Process,
    plan: PlanFile,
    policy: Policy,
    *,
    requested_by: str,
    overrides: Sequence[str],
    through: Callable[[int], None],
) -> runs.Run:
    """Do what the plan names, part after part, until it is done or the process is to stop.

    `through` is told how many of its rows are gone through. Raises StoreError where the run cannot
    be opened or closed, and PlanRefused where the file is changed meanwhile; everything else is in
    its record.
    """
    header = plan.header
    asked = {
        "scopes": header.scopes,
        "policy": None,
        "flags": {
            "plan": shown(plan.path.name).strip('"'),
            "digest": plan.digest,
            "rows": str(plan.rows),
        },
    }
    return on_record(
        process,
        header.job,
        lambda run: _work_through(process, run, plan, policy, through),
        requested_by=requested_by,
        overrides=overrides,
        asked=asked,
    )


def _work_through(
    process: Process,
    run: runs.Run,
    plan: PlanFile,
    policy: Policy,
    through: Callable[[int], None],
) -> None:
    number, done = 0, 0
    given_up: dict[str, str] = {}
    for piece in plan.pieces():
        done += len(piece)
        turn = _Turn(run.job, piece, given_up, done, through)
        while turn.rest:
            number += 1
            scopes = list(dict.fromkeys(row.scope for row in turn.rest))
            part = runs.begin_part(process.database, run, number, scopes)
            outcome = frame.do_part(process, part, policy, run.overrides, turn)
            # WHY the rest again: a budget ends a part so that a worker can take turns; by hand
            # nobody else waits.
            unfinished = bool(turn.rest) or done < plan.rows
            stopped = unfinished and (turn.over or process.stopping.is_set())
            frame.finish(process, part, replace(outcome, more=stopped))
            if stopped or outcome.error is not None:
                return


@dataclass(slots=True)
class _Turn:
    """Does some rows of the plan, in one part of a run or in several."""

    job: str
    rest: list[PlannedRow]
    given_up: dict[str, str]
    # How many rows of the plan are gone through once no rest is left.
    ends_at: int
    through: Callable[[int], None]
    # True: the job has ended by itself before it was through with them.
    over: bool = False

    def __call__(self, context: Context) -> Outcome:
        report = applied.run(
            context,
            self.job,
            self.rest,
            self.given_up,
            lambda left: self.through(self.ends_at - left),
        )
        # WHY over without a step: what is left was in another session's hands for a whole turn.
        got_on = len(report.rest) < len(self.rest)
        self.rest, self.over = report.rest, report.early or not got_on
        return Outcome(more=bool(report.rest), failing=report.failing)
