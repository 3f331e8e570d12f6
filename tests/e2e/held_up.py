"""One of our processes that a test can hold up: a worker, a beat, or `run`.

While the file FOLDER/main is there, SIGUSR2 keeps the main thread where it is; while FOLDER/beat is
there, the scheduler does not come back from its next turn. Started as
`python -m tests.e2e.held_up FOLDER worker|beat|run OPTION…`.
"""

import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from worker import beat, context, loops

# WHY not the setting: it is a minute at the least. The beat sleeps for up to 5 s.
LIMIT = timedelta(seconds=10)


def wait_while(file: Path) -> None:
    """Come back once nothing is there."""
    while file.exists():
        time.sleep(0.02)


def main(folder: Path, part: str, *options: str) -> None:
    """Run the process to its end."""

    class Scheduler(beat.Scheduler):
        def tick(self, *args: Any, **kwargs: Any) -> float:
            wait_while(folder / "beat")
            return super().tick(*args, **kwargs)

    vars(beat)["Scheduler"] = Scheduler
    vars(context)["Loops"] = lambda _: loops.Loops(LIMIT)
    signal.signal(signal.SIGUSR2, lambda *_: wait_while(folder / "main"))
    if part == "run":
        from worker.__main__ import main as our_command

        sys.argv = ["sema-maintenance", part, *options]
        our_command()
    else:
        from celery.__main__ import main as celery_command

        sys.argv = ["celery", "-A", "worker", part, *options]
        celery_command()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
