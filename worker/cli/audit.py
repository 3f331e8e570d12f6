"""The memory audit by hand, in the environment of whoever runs it."""

from __future__ import annotations

import click

from worker.cli import options, show
from worker.cli.asked import Asked, enqueue_option, refuse_both
from worker.cli.enqueue import place
from worker.cli.failures import DONE, FAILED, complain
from worker.cli.target import ledger, no_policy, requested_by

_CLEAR = "no reason was found why agents could not write memory; that is no proof that they can"


@click.command(
    epilog="Example: sema-maintenance audit-memory --dry-run",
    short_help="Say where agents cannot write memory.",
)
@click.option("--dry-run", is_flag=True, help="Only say what is found; needs no database.")
@options.overrides("audit_memory")
@enqueue_option
@options.as_json
def audit_memory(dry_run: bool, overrides: tuple[str, ...], enqueue: bool, as_json: bool) -> int:
    """Say where agents of this deployment structurally cannot write memory.

    Reads the server's own variables (REMOTE_EXEC, MEMORY_ENGINE_BACKEND and so on) from this
    command's environment, so run it with the server's; with --enqueue, from the worker's. What is
    found is kept in the database and shown as a metric.
    """
    refuse_both(enqueue=enqueue, dry_run=dry_run)
    lifted = tuple(dict.fromkeys(overrides))
    if enqueue:
        asked = Asked(None, confirmed=True, dry_run=False, overrides=lifted, as_json=as_json)
        return place("audit_memory", asked, no_policy, {})
    return _dry_run(as_json) if dry_run else _run(lifted, as_json)


def _dry_run(as_json: bool) -> int:
    import os.path

    from config.server import read_process_environment
    from config.settings import load_settings
    from tasks import audit_memory as task
    from worker.logs import configure

    settings = load_settings()
    configure(settings.log_level, settings.log_format)
    report = task.run(read_process_environment, os.path.realpath)
    found: dict[str, str] = {warning.tag: warning.detail for warning in report.warnings}
    _show(found, as_json, {"dry_run": True, "outcome": report.outcome, "error": report.error})
    return _ended(report.error)


def _run(overrides: tuple[str, ...], as_json: bool) -> int:
    from store import memory_boundary, needs
    from worker.manual import by_hand

    with ledger(
        lambda settings: needs.by_hand("audit_memory", settings.release_backend)
    ) as process:
        run = by_hand(
            process,
            "audit_memory",
            None,
            policy=process.policy,
            requested_by=requested_by(),
            overrides=overrides,
        )
        failed = run.state != "succeeded"
        found = {} if failed else memory_boundary.in_force(process.database)
    outcome = "failed" if failed else "warned" if found else "clear"
    state = {"run_id": str(run.run_id), "outcome": outcome, "error": run.error}
    _show(found, as_json, {"dry_run": False, **state})
    return _ended(run.error)


def _show(found: dict[str, str], as_json: bool, state: dict[str, object]) -> None:
    if as_json:
        show.document({"job": "audit_memory", **state, "warnings": found})
        return
    for tag, detail in found.items():
        click.echo(f"{tag}: {detail}")
    if state["outcome"] == "clear":
        click.echo(_CLEAR)


def _ended(error: str | None) -> int:
    if error is not None:
        complain(f"the audit failed: {error}")
        return FAILED
    return DONE
