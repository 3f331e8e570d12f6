"""The image as it is built and started for real: by buildah and podman, as root on this machine."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

CHECKOUT: Final = Path(__file__).parents[2]
PROGRAMS: Final = ("buildah", "debootstrap", "podman", "runc")
_BASE: Final = "sema-test-base"
_IMAGE: Final = "sema-test"
# Debian's release of the image's own base, so that Python is the same.
_RELEASE: Final = "trixie"
# WHY the machine's certificates: its way to packages may go through a proxy with one of its own.
_CERTIFICATES: Final = "/etc/ssl/certs:/etc/ssl/certs:ro"
# WHY so: a container started without systemd can neither raise limits nor have timers.
_START: Final = (
    "--network=host",
    "--no-healthcheck",
    "--ulimit=nofile=1024:1024",
    "--ulimit=nproc=4096:4096",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
)
READ_ONLY: Final = ("--read-only", "--read-only-tmpfs=false")


def why_unavailable() -> str | None:
    """Why no image can be built and started here; None if one can."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"no {', '.join(missing)} here"
    return None if os.geteuid() == 0 else "an image is built and started by root only"


def run(*command: str | Path) -> str:
    """What the command wrote; it must end well."""
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


@dataclass(frozen=True)
class Images:
    """A store of images of its own, below `folder`."""

    folder: Path

    @property
    def store(self) -> list[str]:
        return [f"--root={self.folder / 'store'}", f"--runroot={self.folder / 'run'}"]

    def buildah(self, *args: str | Path) -> str:
        return run("buildah", *self.store, *args).strip()

    def podman(self, *args: str | Path) -> str:
        flags = ("--events-backend=none", "--cgroup-manager=cgroupfs", "--runtime=runc")
        return run("podman", *self.store, *flags, *args).strip()

    def build(self) -> "Image":
        """Build the image as `make image` does, on a base that is made from Debian's packages."""
        root = self.folder / "debian"
        packages = "--include=python3,python3-venv,ca-certificates"
        run("debootstrap", "--variant=minbase", packages, _RELEASE, root)
        container = self.buildah("from", "scratch")
        self.buildah("add", "-q", container, root, "/")
        self.buildah("commit", "-q", "--rm", container, _BASE)
        shutil.rmtree(root)
        run(
            "make",
            "image",
            f"BUILDER=buildah {' '.join(self.store)}",
            f"BASE=localhost/{_BASE}",
            f"IMAGE={_IMAGE}",
            f"IMAGE_ARGS=--isolation chroot --format docker --volume {_CERTIFICATES}",
        )
        [name] = self.podman(
            "images", "--noheading", "--format={{.Repository}}:{{.Tag}}", _IMAGE
        ).split()
        return Image(self, name)

    def remove(self) -> None:
        """Leave nothing behind, layers that are mounted included."""
        self.podman("rm", "--all", "--force", "--time=0")
        self.podman("rmi", "--all", "--force")


@dataclass(frozen=True)
class Image:
    """An image that was built, and the containers of it."""

    images: Images
    name: str

    @property
    def config(self) -> dict[str, Any]:
        """What the image says of itself, in the words of Docker's format."""
        described = json.loads(self.images.buildah("inspect", "--type=image", self.name))
        config = described["Docker"]["config"]
        assert isinstance(config, dict)
        return config

    def output(self, *args: str, flags: tuple[str, ...] = ()) -> str:
        """What a container wrote that runs to its end."""
        return self.images.podman("run", "--rm", *_START, *flags, self.name, *args)

    @contextmanager
    def started(self, *args: str, flags: tuple[str, ...] = ()) -> Iterator["Container"]:
        """A container while the block runs."""
        container = self.images.podman("create", *_START, *flags, self.name, *args)
        try:
            self.images.podman("start", container)
            yield Container(self, container)
        finally:
            self.images.podman("rm", "--force", "--time=0", container)


@dataclass(frozen=True)
class Container:
    """One container. Its programs are started beside its own process, as the same user."""

    image: Image
    id: str

    def does(self, *command: str) -> tuple[int, str]:
        """Exit code and output of a program in it."""
        podman = ("podman", *self.image.images.store, "--runtime=runc")
        done = subprocess.run(
            [*podman, "exec", self.id, *command], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def is_well(self) -> bool:
        """Whether the image's own health check says so."""
        kind, *command = self.image.config["Healthcheck"]["Test"]
        assert kind == "CMD"
        return self.does(*command) == (0, "ok\n")

    @property
    def log(self) -> str:
        """What it has written so far."""
        podman = ("podman", *self.image.images.store)
        done = subprocess.run(
            [*podman, "logs", self.id], capture_output=True, text=True, check=True
        )
        return done.stdout + done.stderr

    def stop(self) -> int:
        """Ask it to end, as Kubernetes does, and wait; its exit code."""
        self.image.images.podman("stop", "--time=60", self.id)
        return int(self.image.images.podman("inspect", "--format={{.State.ExitCode}}", self.id))
