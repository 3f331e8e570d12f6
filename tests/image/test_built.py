"""The image built for real, and started as strictly as a cluster may do it."""

import json
import re
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import unavailable
from tests.e2e.deployment import READY, valkey
from tests.e2e.scraping import fetch
from tests.image.containers import CHECKOUT, READ_ONLY, Image, Images, why_unavailable
from tests.ports import free_port
from tests.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
ITS_OWN, ANYBODY = "10001:10001", "4242:4242"


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    if reason := why_unavailable():
        unavailable(reason)
    with tempfile.TemporaryDirectory(prefix="sema-image-", dir="/var/tmp") as folder:
        images = Images(Path(folder))
        try:
            yield images.build()
        finally:
            images.remove()


def is_ready(port: int) -> bool:
    """Whether what serves at this port says that it can work."""
    try:
        return fetch(f"http://127.0.0.1:{port}/readyz").status == 200
    except OSError:  # it does not listen yet
        return False


def locked(name: str) -> dict[str, str]:
    """The version of each package in a lock file."""
    text = (CHECKOUT / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def test_it_says_what_it_is(image: Image) -> None:
    """A user by number, a health check, where it comes from."""
    config = image.config

    assert config["User"] == ITS_OWN
    assert config["Healthcheck"]["Test"][0] == "CMD"
    labels = {name.rpartition(".")[2]: said for name, said in config["Labels"].items()}
    assert labels["title"] == "sema-maintenance"
    assert labels["version"] == image.name.partition(":")[2]
    assert re.fullmatch("[0-9a-f]{40}", labels["revision"])
    assert labels["created"] > "2026"
    assert not [each for each in config["Env"] if re.search("PASSWORD|TOKEN|SECRET", each)]


def test_its_bill_of_materials_is_what_was_locked(image: Image) -> None:
    """Every package at its locked version, and nothing that only built it."""
    bill = json.loads(image.output("sh", "-c", "cat /opt/sema/sbom.cdx.json"))
    found = {part["name"].lower().replace("_", "-"): part["version"] for part in bill["components"]}
    listed = json.loads(
        image.output(
            "python",
            "-c",
            "import json; from importlib.metadata import distributions as d; "
            "print(json.dumps(sorted(x.name.lower().replace('_', '-') for x in d())))",
        )
    )

    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "sema-maintenance"
    packages = locked("requirements.lock")
    assert {name: packages[name] for name in found} == found
    assert {*found, "sema-maintenance"} == {*listed}
    assert "setuptools" not in listed


@pytest.mark.parametrize("user", [ITS_OWN, ANYBODY])
def test_nothing_but_tmp_can_be_written(image: Image, user: str) -> None:
    """Even where nobody made its root read-only."""
    search = "find / -xdev -writable ! -type l ! -path /tmp ! -path '/tmp/*' 2>/dev/null || true"

    assert image.output("sh", "-c", search, flags=(f"--user={user}",)) == ""


@pytest.mark.parametrize("user", [ITS_OWN, ANYBODY])
def test_run_and_doctor_work_on_a_read_only_root(image: Image, user: str) -> None:
    """With an embedded database in /tmp, whoever the user is; it ends when it is told to."""
    port = free_port()
    flags = (
        *READ_ONLY,
        "--tmpfs=/tmp",
        f"--user={user}",
        f"--env=MAINT_HTTP_ADDRESS=0.0.0.0:{port}",
    )

    with image.started("run", "--sample", flags=flags) as container:
        wait_until(container.is_well, "the health check is passed")
        wait_until(partial(is_ready, port), "it is ready")
        code, said = container.does("/opt/sema/image/start", "doctor")

        assert (code, "error " in said) == (0, False), said
        assert "background_agents{" in fetch(f"http://127.0.0.1:{port}/metrics").body
        assert container.stop() == 0
        assert "stopped; the ledger is kept" in container.log


def test_worker_and_beat_work_on_a_read_only_root(image: Image) -> None:
    """Both beside a broker, on a database that another container has; a doctor finds no error."""
    with tempfile.TemporaryDirectory(prefix="sema-image-", dir="/tmp") as tmp, valkey() as broker:
        Path(tmp).chmod(0o1777)
        database = "postgresql://sema@/sema?host=/tmp/sema-maintenance/postgres/socket"
        shared = (*READ_ONLY, f"--volume={tmp}:/tmp", f"--user={ANYBODY}")
        given = [f"--env=MAINT_BROKER_URL={broker}/0", f"--env=MAINT_DATABASE_URL={database}"]
        ports = [free_port() for _ in range(3)]
        addresses = [f"--env=MAINT_HTTP_ADDRESS=127.0.0.1:{port}" for port in ports]
        celery = ("celery", "-A", "worker")
        with image.started("run", flags=(*shared, addresses[0])) as keeper:
            wait_until(keeper.is_well, "the database is there")
            with (
                image.started(*celery, "worker", flags=(*shared, *given, addresses[1])) as worker,
                image.started(*celery, "beat", flags=(*shared, *given, addresses[2])) as beat,
            ):
                for port in ports[1:]:
                    wait_until(partial(is_ready, port), f"{port} is ready")
                assert worker.is_well()
                assert beat.is_well()
                # WHY not a tick: the keeper of the database works as well, and may claim them all.
                wait_until(lambda: READY in worker.log, "the worker works")
                code, said = worker.does("/opt/sema/image/start", "doctor")
                assert (code, "error " in said) == (0, False), said
                assert (beat.stop(), worker.stop()) == (0, 0)
