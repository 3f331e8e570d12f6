"""Look over everything that the worker needs, and say what to do about what is wrong."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from worker.cli import options, show
from worker.cli.failures import DONE, FAILED, say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from config.errors import PolicyError
    from config.policy import Policy
    from config.settings import Settings
    from store.database import Database
    from store.diagnosis import Finding

_LABEL: Final = 8
_INDENT: Final = "          "
# Of those that `grants` knows: whoever else has no more to do with the database than it says.
_FOR: Final = ("worker", "operator", "exporter")


@click.command(
    epilog="Example: sema-maintenance doctor --json",
    short_help="Look over everything the worker needs.",
)
@options.policy_file
@options.purpose(_FOR, "What the role that connects is to do.")
@click.option("--strict", is_flag=True, help="Exit 1 for warnings and checks not made as well.")
@options.as_json
def doctor(policy_file: Path | None, purpose: str, strict: bool, as_json: bool) -> int:
    """Look over database, ledger, broker, policy and schedule; changes nothing.

    Each line is ok, a warning (the worker works, but worse than it could) or an error (some of its
    work is not done), with the remedy to copy below it. What could not be looked at is not made. No
    check reads the whole ledger or takes longer than about two seconds. With --for the role that
    connects is judged by what `grants --for` gives. Exits 1 if there is an error.
    """
    from config.settings import load_settings
    from worker.logs import configure

    settings = load_settings()
    configure(settings.log_level, settings.log_format)
    found = _read_policy(settings, policy_file)
    states: Counter[str] = Counter()
    checks: list[dict[str, Any]] = []
    with _database(settings) as (database, trouble):
        of_database = (
            _away(trouble) if database is None else _looked_at(settings, found, purpose, database)
        )
        for together in _with_what_is_alike(_everything(settings, found, of_database)):
            states[together[0][1].state] += len(together)
            if as_json:
                checks += [{"check": check, **asdict(finding)} for check, finding in together]
            else:
                _show(", ".join(check for check, _ in together), together[0][1])
    failed = bool(states["error"] or (strict and (states["warning"] or states["not made"])))
    if as_json:
        outcome = "error" if states["error"] else "warning" if states["warning"] else "ok"
        counts = {state: states[state] for state in ("ok", "warning", "error", "not made")}
        show.document({"for": purpose, "outcome": outcome, "counts": counts, "checks": checks})
    else:
        click.echo(f"{_summary(states)} (for: {purpose})")
    return FAILED if failed else DONE


def _read_policy(settings: Settings, policy_file: Path | None) -> Policy | PolicyError:
    """The policy, or what is wrong with it: one finding among others."""
    from config.errors import PolicyError
    from config.policy import load_policy
    from worker.context import read_policy

    try:
        return read_policy(settings) if policy_file is None else load_policy(policy_file)
    except PolicyError as error:
        return error


def _everything(
    settings: Settings,
    found: Policy | PolicyError,
    of_database: Iterable[tuple[str, Finding]],
) -> Iterator[tuple[str, Finding]]:
    from worker import diagnosis

    yield from _named("policy", diagnosis.policy(found))
    yield from _named("transcripts", diagnosis.releases(settings))
    yield from diagnosis.broker(settings)
    yield from of_database


def _named(check: str, findings: Iterable[Finding]) -> Iterator[tuple[str, Finding]]:
    return ((check, finding) for finding in findings)


@contextmanager
def _database(settings: Settings) -> Iterator[tuple[Database | None, str]]:
    """The database, and which it is said before anything else; or why there is none."""
    from pydantic import SecretStr

    from store.diagnosis import Thresholds
    from worker.context import open_database
    from worker.embedded import EmbeddedUnavailable, embedded_postgres

    # WHY so short: one slow table is not to hide what is wrong with the others.
    limits: dict[str, Any] = {"statement_timeout": Thresholds().statement_timeout}
    with ExitStack() as stack:
        embedded = ""
        if settings.database_url is None:
            folder = settings.data_dir / "postgres"
            try:
                url = stack.enter_context(embedded_postgres(folder, create=False))
            except EmbeddedUnavailable as trouble:
                yield None, str(trouble)
                return
            limits["database_url"] = SecretStr(url)
            embedded = f" (embedded, in {folder})"
        database = stack.enter_context(open_database(settings.model_copy(update=limits)))
        say(f"database: {database.describe()}{embedded}")
        yield database, ""


def _away(trouble: str) -> Iterator[tuple[str, Finding]]:
    from store.diagnosis import NEEDING_THE_DATABASE, error, not_made

    yield "database", error(trouble)
    yield from ((name, not_made("needs the database")) for name in NEEDING_THE_DATABASE)


def _looked_at(
    settings: Settings, found: Policy | PolicyError, purpose: str, database: Database
) -> Iterator[tuple[str, Finding]]:
    from config.policy import Policy
    from store.diagnosis import Deployment, diagnose
    from worker.cli.grants import needs_for
    from worker.schedule import entries

    schedule = entries(found.schedule if isinstance(found, Policy) else {})
    periods = {job: entry.every for job, entry in schedule.items()}
    deployment = Deployment(needs_for(purpose, settings), periods, time.time, purpose)
    yield from diagnose(database, deployment)


def _with_what_is_alike(
    lines: Iterable[tuple[str, Finding]],
) -> Iterator[list[tuple[str, Finding]]]:
    """Each line by itself, but checks that are not made for one reason together."""
    for (state, _), group in itertools.groupby(lines, lambda line: (line[1].state, line[1].found)):
        if state == "not made":
            yield list(group)
        else:
            yield from ([line] for line in group)


def _show(check: str, finding: Finding) -> None:
    click.echo(f"{finding.state:<{_LABEL}}  {check}: {show.printable(finding.found)}")
    for remedy in finding.remedies:
        click.echo(f"{_INDENT}→ {show.printable(remedy)}")


def _summary(states: Counter[str]) -> str:
    """One line, the worst first."""
    said = [
        f"{states[state]} {word}{'' if states[state] == 1 else plural}"
        for state, word, plural in (
            ("error", "error", "s"),
            ("warning", "warning", "s"),
            ("not made", "not made", ""),
            ("ok", "ok", ""),
        )
        if states[state]
    ]
    return ", ".join(said)
