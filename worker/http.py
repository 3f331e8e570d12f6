"""placeholder"""

from worker.context import Process


def serve(process: Process) -> None: ...
