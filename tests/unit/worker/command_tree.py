"""Every command that there is, found by walking from the top, so that none is left out."""

import shlex
from collections.abc import Iterator

import click

from worker.cli.commands import sema_maintenance

# They print no result of their own: `run` goes on until it is stopped, and what `export` writes is
# JSON lines already.
WITHOUT_JSON = {("run",), ("export",)}


def every_command(
    command: click.Command = sema_maintenance, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Each command under this one with the words that call it, groups included."""
    if path:
        yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from every_command(below, (*path, name))


COMMANDS = dict(every_command())
LEAVES = {path: c for path, c in COMMANDS.items() if not isinstance(c, click.Group)}


def example_of(command: click.Command) -> list[str]:
    """The words after the program's name in the example that its help ends with."""
    assert command.epilog is not None
    said = command.epilog.partition("Example: ")[2].partition(" | ")[0]
    program, *words = shlex.split(said)
    assert program == "sema-maintenance"
    return words


def taken(arguments: list[str], command: click.Command = sema_maintenance) -> None:
    """Fails with click's own words where the command line would refuse these arguments."""
    with command.make_context(command.name, [*arguments]) as context:
        if isinstance(command, click.Group):
            _, chosen, rest = command.resolve_command(
                context, [*context._protected_args, *context.args]
            )
            assert chosen is not None
            taken(rest, chosen)
