"""The tools that are fetched: what is not the pinned program is not kept."""

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from deploy.tools import bootstrap


def wheel(folder: Path, program: bytes) -> Path:
    """A wheel that holds a program as those on PyPI do."""
    layer, package = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(layer, "w") as inner:
        inner.writestr("helm/helm", program)
    with tarfile.open(fileobj=package, mode="w:gz") as archive:
        member = tarfile.TarInfo("package/lib/layer.zip")
        member.size = len(layer.getvalue())
        archive.addfile(member, io.BytesIO(layer.getvalue()))
    made = folder / "made-1-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as outer:
        outer.writestr("made/_jsii/made.tgz", package.getvalue())
        outer.writestr(
            "made-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: made\nVersion: 1\n"
        )
        outer.writestr("made-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        outer.writestr("made-1.dist-info/RECORD", "")
    return made


def tool(wheel: Path, program: bytes) -> bootstrap.Tool:
    """Of this wheel, and of a program of this content."""
    of_wheel, of_program = (
        hashlib.sha256(each).hexdigest() for each in (wheel.read_bytes(), program)
    )
    return bootstrap.Tool("helm-0", "0.1", "made==1", of_wheel, "helm/helm", of_program)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel in the only place where pip looks for one."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    found = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": str(shelf)}
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return wheel(shelf, b"right")


def test_a_program_is_kept_only_with_its_hash(tmp_path: Path, made: Path) -> None:
    """Whatever the wheel's own hash says; one that was changed later is fetched anew."""
    kept = tmp_path / "kept"

    with pytest.raises(bootstrap.Unavailable, match=r"has the SHA-256 .*; not kept"):
        bootstrap.fetch(tool(made, b"wrong"), kept)
    assert not kept.exists()

    place = bootstrap.fetch(tool(made, b"right"), kept)
    assert place.read_bytes() == b"right"
    assert place.stat().st_mode & 0o111
    place.write_bytes(b"changed")
    assert bootstrap.fetch(tool(made, b"right"), kept).read_bytes() == b"right"
    assert [each.name for each in kept.iterdir()] == ["helm-0"]


def test_a_wheel_of_another_hash_is_not_opened(tmp_path: Path, made: Path) -> None:
    other = tool(made, b"right")._replace(wheel_sha256="0" * 64)

    with pytest.raises(bootstrap.Unavailable, match="cannot be downloaded"):
        bootstrap.fetch(other, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_without_an_index_it_says_what_could_not_be_had(tmp_path: Path, made: Path) -> None:
    missing = tool(made, b"")._replace(wheel="no-such-wheel-of-ours==1", wheel_sha256="0" * 64)

    with pytest.raises(
        bootstrap.Unavailable, match="no-such-wheel-of-ours==1 cannot be downloaded"
    ):
        bootstrap.fetch(missing, tmp_path)
