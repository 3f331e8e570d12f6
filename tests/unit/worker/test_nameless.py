"""A user id without a name: it is given one to make a cluster, or the remedy is said."""

import os
from pathlib import Path

import pytest

from worker.embedded import EmbeddedUnavailable, nameless
from worker.embedded.root import Account

NOBODY_HAS_IT = 1_999_999_999


def test_an_account_with_a_name_keeps_it(tmp_path: Path) -> None:
    assert nameless.naming(Account(os.geteuid(), os.getegid()), tmp_path) == {}
    assert [*tmp_path.iterdir()] == []


def test_without_the_library_the_remedy_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nameless, "_LIBRARY", ("nowhere/*",))

    with pytest.raises(EmbeddedUnavailable) as refused:
        nameless.naming(Account(NOBODY_HAS_IT, NOBODY_HAS_IT), tmp_path)

    assert str(refused.value) == (
        f"The user id {NOBODY_HAS_IT} has no name on this system, and Postgres wants one: install "
        "libnss-wrapper, start as a user that has a name, or set MAINT_DATABASE_URL to a database "
        "of your own."
    )
    assert [*tmp_path.iterdir()] == []


def test_with_the_library_two_files_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests of the image show that Postgres takes it."""
    library = tmp_path / "libnss_wrapper.so"
    library.touch()
    monkeypatch.setattr(nameless, "_LIBRARY", (str(library).removeprefix("/"),))

    given = nameless.naming(Account(NOBODY_HAS_IT, 7), tmp_path)

    assert given["LD_PRELOAD"] == str(library)
    users, groups = (Path(given[f"NSS_WRAPPER_{of}"]).read_text() for of in ("PASSWD", "GROUP"))
    assert (users, groups) == (f"sema:x:{NOBODY_HAS_IT}:7::/:/bin/false\n", "sema:x:7:\n")
