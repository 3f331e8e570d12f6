"""What the image is made from: linted, and nothing named that is not there."""

import subprocess
import sys
from pathlib import Path

import pytest

from config.policy import Policy
from tests.e2e.scraping import process_of, serving
from tests.image.containers import CHECKOUT
from tests.ports import free_port

HADOLINT = Path(sys.executable).with_name("hadolint")
HEALTHCHECK = CHECKOUT / "deploy" / "image" / "healthcheck.py"
NOWHERE = "postgresql://nobody@127.0.0.1:1/none"


def checked(address: str) -> subprocess.CompletedProcess[str]:
    """The health check of a container whose process serves there."""
    return subprocess.run(
        [sys.executable, "-I", "-S", HEALTHCHECK],
        env={"MAINT_HTTP_ADDRESS": address, "http_proxy": "http://127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_linter_finds_nothing() -> None:
    done = subprocess.run(
        [HADOLINT, "Dockerfile"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "[::]", "localhost"])
def test_the_health_check_asks_where_the_process_serves(host: str) -> None:
    """Also where that is everywhere; 1 and the reason once a loop stands still."""
    process = process_of(NOWHERE, Policy.empty(), MAINT_HTTP_ADDRESS=f"{host}:{free_port()}")
    with serving(process) as served:
        address = f"{host}:{str(served.address).rpartition(':')[2]}"
        well = checked(address)
        process.loops.beat.end()
        stopped = checked(address)

    assert (well.returncode, well.stdout) == (0, "ok\n")
    assert stopped.returncode == 1
    assert "beat" in stopped.stdout


def test_the_health_check_of_a_process_that_is_not_there_fails() -> None:
    done = checked(f"127.0.0.1:{free_port()}")

    assert done.returncode == 1
    assert "does not answer" in done.stdout
