"""Run by the Python of a clean environment that holds the wheel and nothing of the checkout.

Every top-level package of the wheel is ours and complete, and `run --sample` does the main job.
Exits with a sentence where one of that is not so.
"""

import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import distribution
from pathlib import Path

PACKAGES = {"worker", "tasks", "store", "memory", "config"}
JOBS = {"reap", "flip_stale_running", "reconcile_parked", "release_sessions"}
DEADLINE_S = 90


def check_packages() -> None:
    """What the wheel brings is the five packages, and Python finds them in the environment."""
    files = distribution("sema-maintenance").files or []
    tops = {file.parts[0] for file in files if file.suffix in {".py", ".sql", ".toml"}}
    if tops != PACKAGES:
        sys.exit(f"the wheel holds {sorted(tops)}, not {sorted(PACKAGES)}")
    if not any(file.suffix == ".sql" for file in files):
        sys.exit("the wheel holds no SQL")
    for name in sorted(PACKAGES):
        where = Path(importlib.import_module(name).__file__ or "").resolve()
        if not where.is_relative_to(Path(sys.prefix).resolve()):
            sys.exit(f"{name} is {where}, which is not the wheel's")


def check_run() -> None:
    """`run --sample` runs every job on an embedded ledger, and stops cleanly."""
    command = str(Path(sys.prefix) / "bin" / "sema-maintenance")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as output:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "MAINT_DATA_DIR": folder,
            "MAINT_HTTP_ADDRESS": "127.0.0.1:0",
        }
        process = subprocess.Popen(
            [command, "run", "--sample"],
            env=environment, stdout=output, stderr=subprocess.STDOUT, cwd=folder,
        )  # fmt: skip
        shown = ""
        ends = time.monotonic() + DEADLINE_S
        while time.monotonic() < ends and process.poll() is None:
            output.seek(0)
            shown = output.read()
            if all(f"{job:18}  succeeded" in shown for job in JOBS):
                break
            time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=60)
        missing = sorted(job for job in JOBS if f"{job:18}  succeeded" not in shown)
        if code or missing:
            sys.exit(f"run --sample exited {code}, never ran {missing}:\n{shown}")


check_packages()
check_run()
sys.stdout.write("the wheel is complete, and its `run --sample` does the main job\n")
