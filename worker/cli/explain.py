"""Why a row is as it is, and what becomes of it: which rule, which clock, what is in the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from worker.cli import options, show
from worker.cli.actions import did, why
from worker.cli.failures import DONE, FAILED, complain, say
from worker.cli.target import ledger

if TYPE_CHECKING:
    from config.policy import Policy
    from config.settings import Settings
    from worker.context import Process
    from worker.explained import Course, Known


@click.command(
    epilog="Example: sema-maintenance explain tenant/acme agent-17",
    short_help="Say what becomes of one row, and why.",
)
@click.argument("scope", type=options.Scope())
@click.argument("handle", type=options.Name())
@options.policy_file
@options.as_json
def explain(scope: str, handle: str, policy_file: Path | None, as_json: bool) -> int:
    """Say what becomes of the row HANDLE of SCOPE: when, by which rule, and what is in the way.

    Of a row that is gone it says what is known of its end. All times are the database's; nothing is
    locked, and nothing is written. Exit code 1: nothing is known of such a row.
    """
    from store.needs import EXPLAIN
    from worker.explained import verdict

    def policy_for(settings: Settings) -> Policy:
        from config.policy import load_policy
        from worker.context import read_policy

        return read_policy(settings) if policy_file is None else load_policy(policy_file)

    with ledger(EXPLAIN, policy_for) as process:
        known = _known(process, scope, handle)
        if known.facts.record is None:
            _doubt_scope(process, scope)
    facts = known.facts
    there = facts.record is not None
    if as_json:
        show.document(_document(known))
    else:
        click.echo(
            f"{show.printable(handle)} of {show.printable(scope)}: {show.printable(verdict(known))}"
        )
        for line in _lines(known):
            click.echo(line)
    if there or facts.left or any(act.handle is not None for act in facts.actions):
        return DONE
    named = f"{show.printable(handle)!r} in scope {show.printable(scope)!r}"
    complain(f"nothing is known of an agent {named}")
    return FAILED


def _doubt_scope(process: Process, scope: str) -> None:
    from store.overview import scopes_without_rows

    if scopes_without_rows(process.database, [scope]):
        say(
            f"note: scope {show.printable(scope)!r} holds no agents; `sema-maintenance scopes` "
            "lists those that do"
        )


def _known(process: Process, scope: str, handle: str) -> Known:
    from store import breakers, pauses
    from store.batches import Stamp
    from store.errors import CheckpointsGone
    from store.one_row import facts_of
    from store.overview import slots
    from store.runs import clock
    from tasks.outlook import JOBS, Outlook, outlook
    from worker.explained import Known

    refused = None
    found: list[Outlook] = []
    with process.database.transaction(read_only=True, snapshot=True) as tx:
        now = clock(tx)
        facts = facts_of(tx, scope, handle, now)
        context = process.context(Stamp(now))
        for job in JOBS if facts.record is not None else ():
            try:
                found.append(outlook(context, tx, facts, job))
            except CheckpointsGone as error:
                refused = error
                found.append(Outlook(job, None, None, None, None))
        tripped = frozenset(job for job in JOBS if breakers.tripped(tx, job, [scope]))
    _, ticks = slots(process.database)
    return Known(
        now,
        facts,
        process.policy,
        found,
        pauses.in_force(process.database),
        tripped,
        ticks,
        process.entries,
        refused,
    )


def _lines(known: Known) -> Iterator[str]:
    facts = known.facts
    if (record := facts.record) is not None:
        yield from _section("row", _row(known))
        yield from _section("approval", _approval(known))
        if (transcript := facts.transcript) is not None:
            there = (
                f"last written {_at(transcript.updated_at)}" if transcript.is_there else "not here"
            )
            named = f"named by {transcript.named_by} of its scope's rows"
            yield from _section("transcript", [f"{transcript.session_id}: {there}, {named}"])
        rules = [f"{rule.field} = {rule.value}, from {rule.source}" for rule in known.rules]
        yield from _section(f"policy ({known.policy.source})", rules)
        for course in known.courses():
            yield from _section(course.job.replace("_", "-"), _course(known, course))
        seen = [
            f"{each.verdict} since {_at(each.first_seen)}, last looked at {_at(each.last_seen)}"
            for each in facts.sightings
            if each.still
        ]
        yield from _section(f"seen at revision {record.rev}", seen)
    yield from _section("outbox", [_left(each, known.now) for each in facts.left])
    yield from _section("done by persons", [_action(each) for each in facts.actions])
    if facts.record is None:
        yield from _section("holds", [_hold(each) for each in facts.holds])
        yield from _section(
            "deleted in its scope",
            [f"{_at(d.at)}: {d.rows} by {d.arm}, in run {d.run_id}" for d in facts.deletions],
        )


def _section(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield f"{title}:"
        for line in lines:
            yield f"  {show.printable(line)}"


def _at(at_ms: int | None) -> str:
    from worker.explained import when

    return "at an unknown time" if at_ms is None else when(at_ms)


def _row(known: Known) -> list[str]:
    from worker.wording import span_of_ms

    record = known.facts.record
    assert record is not None  # noqa: S101 - the caller's
    lines = [f"{record.status}, at revision {record.rev}"]
    if record.status in {"running", "parked"}:
        lines.append(show.heard(record.writer_id, known.now - record.updated_at))
    else:
        lines.append(f"last written by writer {record.writer_id} {_at(record.updated_at)}")
        if record.settled_at is None:
            lines.append("nobody wrote when it settled: it is aged by when it was last written")
        else:
            ago = known.now - record.settled_at
            past = f"{span_of_ms(ago)} ago" if ago >= 0 else f"{span_of_ms(-ago)} ahead"
            lines.append(f"settled {_at(record.settled_at)} ({past} by the database's clock)")
    if record.park_claim_id is not None:
        lines.append("somebody has claimed to resume it")
    return lines


def _approval(known: Known) -> list[str]:
    record, checkpoint = known.facts.record, known.facts.checkpoint
    if record is None or record.parked_checkpoint_token is None:
        return ["it names none"] if record is not None and record.status == "parked" else []
    if checkpoint is None:
        return [f"{record.parked_checkpoint_token}: there is no such checkpoint in its scope"]
    expires = "never" if checkpoint.expires_at is None else _at(checkpoint.expires_at)
    changed = _at(checkpoint.updated_at)
    return [f"{checkpoint.token}: {checkpoint.status}, expires {expires}, last changed {changed}"]


def _course(known: Known, course: Course) -> list[str]:
    from worker.explained import does
    from worker.passed_over import in_words
    from worker.wording import span

    outlook = course.outlook
    last = "none yet" if course.last_tick is None else _at(course.last_tick)
    lines = [f"ticks every {span(course.every)}; the last one: {last}"]
    if not course.asked:
        lines.append(f"the policy ({known.policy.source}) gives it nothing to do in this scope")
    if outlook.due_at is not None and outlook.due_at > known.now:
        lines.append(f"due from {_at(outlook.due_at)} on, if nobody writes the row before")
    elif outlook.now is not None:
        lines.append("due now")
    if outlook.now is not None and not outlook.now.acts:
        cause = str(outlook.now.cause)
        lines.append(f"passed over now ({cause}): {in_words(course.job, cause)}")
    if outlook.then is not None and outlook.acts_at is not None:
        at = "now" if outlook.acts_at <= known.now else f"from {_at(outlook.acts_at)} on"
        seen = ", once it has been seen unmoved until then" if outlook.to_be_seen else ""
        lines.append(f"would {does(outlook.then)} {at}{seen}")
    return lines + [f"in the way: {each.what}" for each in course.obstacles]


def _left(left: Any, now: int) -> str:
    from worker.wording import counted

    transcript = "no transcript" if left.session_id is None else f"transcript {left.session_id}"
    kept = (
        "nothing of the row is kept"
        if left.restorable_until is None
        else f"the row was kept until {_at(left.restorable_until)}"
        if left.restorable_until <= now
        else f"the row is kept until {_at(left.restorable_until)}: `sema-maintenance restore` "
        "brings it back"
    )
    error = "" if left.last_error is None else f"; last error: {left.last_error}"
    return (
        f"deleted {_at(left.deleted_at)} in run {left.run_id}; {transcript}, {left.state}, due "
        f"{_at(left.not_before)}, tried {counted(left.attempts, 'time')}{error}; {kept}"
    )


def _action(act: Any) -> str:
    on = "its scope" if act.handle is None else "it"
    job = "" if act.job is None else f" {act.job}"
    reason = why(act)
    said = "" if reason is None else f" ({reason})"
    return f"{_at(act.at)}: {act.actor}: {did(act)}{job} on {on}{said}"


def _hold(hold: Any) -> str:
    until = "until it is released" if hold.ends_at is None else f"until {_at(hold.ends_at)}"
    return f"hold {hold.id} {until}, placed by {hold.placed_by} ({hold.reason})"


def _document(known: Known) -> dict[str, Any]:
    from worker.explained import verdict

    facts = known.facts
    told = asdict(facts)
    record = facts.record
    if record is not None:
        # WHY without: what an agent said or did is nobody's business here.
        told["record"] = {k: v for k, v in told["record"].items() if k != "content"}
    if told["checkpoint"] is not None:
        told["checkpoint"].pop("content")
    return {
        "scope": told.pop("scope"),
        "handle": told.pop("handle"),
        "now": known.now,
        "verdict": verdict(known),
        "row": told.pop("record"),
        **told,
        "policy": {
            "source": known.policy.source,
            "rules": [asdict(rule) for rule in known.rules],
        },
        "jobs": [_job(course) for course in known.courses()],
    }


def _job(course: Course) -> dict[str, Any]:
    return {
        "job": course.job,
        "asked": course.asked,
        **{k: v for k, v in asdict(course.outlook).items() if k != "job"},
        "earliest_at": course.earliest_at,
        "in_the_way": [asdict(each) for each in course.obstacles],
        "every_seconds": course.every.total_seconds(),
        "last_tick": course.last_tick,
    }
