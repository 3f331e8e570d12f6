"""The command `sema-maintenance`, also `python -m worker`."""

from worker.cli.commands import sema_maintenance


def main() -> None:
    """Run the command line of this process and exit with its code."""
    sema_maintenance()


if __name__ == "__main__":
    main()
