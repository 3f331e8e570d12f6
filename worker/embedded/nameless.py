"""Name an account that has no name, for the programs of Postgres that insist on one.

A container may be started as any user id, and then no list of accounts has it. Of what runs here
only the making of a cluster asks, and a library (nss_wrapper) answers in the system's stead.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from worker.embedded.root import INSTEAD, Account, EmbeddedUnavailable

if sys.platform != "win32":
    import pwd

_NAME = "sema"
# Where Debian has it, by machine, and where others do.
_LIBRARY = ("usr/lib/*/libnss_wrapper.so", "usr/lib64/libnss_wrapper.so")


def naming(account: Account, home: Path) -> Mapping[str, str]:
    """What the environment needs so that the account has a name; nothing where it has one.

    Writes two small files into `home`. Raises EmbeddedUnavailable where nobody can answer.
    """
    try:
        pwd.getpwuid(account.uid)
    except KeyError:
        pass
    else:
        return {}
    library = next((found for at in _LIBRARY for found in Path("/").glob(at)), None)
    if library is None:
        raise EmbeddedUnavailable(
            f"The user id {account.uid} has no name on this system, and Postgres wants one: "
            f"install libnss-wrapper, start as a user that has a name, or {INSTEAD}."
        )
    users, groups = home / "passwd", home / "group"
    users.write_text(f"{_NAME}:x:{account.uid}:{account.gid}::/:/bin/false\n", encoding="utf-8")
    groups.write_text(f"{_NAME}:x:{account.gid}:\n", encoding="utf-8")
    return {
        "LD_PRELOAD": str(library),
        "NSS_WRAPPER_PASSWD": str(users),
        "NSS_WRAPPER_GROUP": str(groups),
    }
