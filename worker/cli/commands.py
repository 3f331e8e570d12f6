"""The commands by name. Each is imported when it is used, so that help is there at once."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from worker.cli.failures import Stopped, exit_code

# By heading of the help text; each command as module:attribute.
_COMMANDS: Final[dict[str, dict[str, str]]] = {
    "All in one": {
        "run": "worker.cli.run:run",
    },
    "Jobs by hand": {
        "reap": "worker.cli.jobs:reap",
        "flip-stale-running": "worker.cli.jobs:flip_stale_running",
        "reconcile-parked": "worker.cli.jobs:reconcile_parked",
        "release-sessions": "worker.cli.jobs:release_sessions",
        "drain-harvest": "worker.cli.jobs:drain_harvest",
        "housekeeping": "worker.cli.jobs:housekeeping",
        "audit-memory": "worker.cli.audit:audit_memory",
    },
    "Plan first": {
        "plan": "worker.cli.plan:plan",
        "apply": "worker.cli.plan:apply",
    },
    "Stop and go on": {
        "pause": "worker.cli.pause:pause",
        "resume": "worker.cli.pause:resume",
    },
    "Undo": {
        "restore": "worker.cli.restore:restore",
        "erase": "worker.cli.restore:erase",
    },
    "Look": {
        "explain": "worker.cli.explain:explain",
        "agents": "worker.cli.agents:agents",
        "scopes": "worker.cli.agents:scopes",
        "status": "worker.cli.status:status",
        "history": "worker.cli.history:history",
        "policy": "worker.cli.policy:policy",
        "releases": "worker.cli.releases:releases",
        "holds": "worker.cli.holds:holds",
    },
    "Ledger": {
        "import": "worker.cli.ledger:import_",
        "export": "worker.cli.ledger:export",
        "migrate": "worker.cli.schema:migrate",
        "version": "worker.cli.schema:version",
    },
    "Deployment": {
        "doctor": "worker.cli.doctor:doctor",
        "grants": "worker.cli.grants:grants",
    },
}
_TARGETS: Final = {name: target for group in _COMMANDS.values() for name, target in group.items()}


class Commands(click.Group):
    """The commands of the table above, and the one place where everything that is raised ends."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Every name, in the order of the table."""
        return list(_TARGETS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        """Import the command of that name; None where there is none."""
        if cmd_name not in _TARGETS:
            return None
        module, _, attribute = _TARGETS[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), cmd_name  # noqa: S101 - our own table
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names. Raises UsageError with what may be meant."""
        name = args[0]
        if name in _TARGETS or name.startswith("-"):
            return super().resolve_command(ctx, args)
        begun = [known for known in _TARGETS if known.startswith(name)]
        close = begun or difflib.get_close_matches(name, _TARGETS, n=1, cutoff=0.5)
        meant = f"; did you mean '{close[0]}'?" if close else "."
        raise click.UsageError(f"there is no command '{name}'{meant}", ctx)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Raises Stopped where Ctrl-C or SIGTERM ends it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise Stopped from stop

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands under their headings."""
        widest = max(map(len, _TARGETS))
        limit = formatter.width - 6 - widest
        for heading, group in _COMMANDS.items():
            rows = []
            for name in group:
                command = self.get_command(ctx, name)
                if command is not None:
                    rows.append((name.ljust(widest), command.get_short_help_str(limit)))
            with formatter.section(heading):
                formatter.write_dl(rows)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,  # noqa: ARG002 - it has one name, however it was started
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: ARG002 - errors end here in any case
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and exit: with 0 done, 1 failed, 2 wrong usage, 130 ended by Ctrl-C."""
        sys.exit(
            exit_code(
                lambda: super(Commands, self).main(
                    args,
                    "sema-maintenance",
                    complete_var,
                    standalone_mode=False,
                    windows_expand_args=windows_expand_args,
                    **extra,
                )
            )
        )


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: sema-maintenance reap --scope tenant/acme --max-age 30d --dry-run",
)
@click.version_option(package_name="sema-maintenance", message="sema-maintenance %(version)s")
def sema_maintenance() -> None:
    """Keep a Sema server's ledger of background agents in order.

    The database is MAINT_DATABASE_URL, or else the embedded one of MAINT_DATA_DIR. Results go to
    standard output, everything else to standard error. Exit codes: 0 done, 1 something failed,
    2 wrong usage or configuration, 130 ended by Ctrl-C.
    """
