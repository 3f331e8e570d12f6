"""The command `sema-maintenance`, also `python -m worker`."""

import sys


def main() -> None:
    """Run the command line of this process and exit with its code."""
    try:
        from worker.cli.commands import sema_maintenance

        sema_maintenance()
    except KeyboardInterrupt:
        # WHY here as well: it may come before the command has begun, or after its end.
        sys.stderr.write("sema-maintenance: stopped before the end\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
