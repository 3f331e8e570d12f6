"""Ask this container's process for its /healthz; exit 0 where its loops turn, 1 where not.

Standard library alone, so that asking costs little.
"""

import os
import sys
import urllib.error
import urllib.request
from urllib.parse import urlsplit

_WITHIN_S = 2.5
# What listens everywhere is asked at the loopback of its family.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - a name to look up


def address(said: str) -> str:
    """Host and port to ask, for those that MAINT_HTTP_ADDRESS names."""
    parts = urlsplit(f"//{said}")
    host = _EVERYWHERE.get(parts.hostname or "", parts.hostname or "127.0.0.1")
    return f"[{host}]:{parts.port}" if ":" in host else f"{host}:{parts.port}"


def main() -> int:
    """Exit code for the container's keeper; what was answered goes to the output."""
    at = address(os.environ.get("MAINT_HTTP_ADDRESS", "").strip() or "127.0.0.1:9464")
    # WHY: a proxy of the environment knows nothing of this container.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{at}/healthz", timeout=_WITHIN_S) as answer:
            said, well = answer.read(500).decode("utf-8", "replace"), True
    except urllib.error.HTTPError as error:
        said, well = error.read(500).decode("utf-8", "replace"), False
    except OSError as error:
        said, well = f"{at} does not answer: {error}\n", False
    sys.stdout.write(said)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
