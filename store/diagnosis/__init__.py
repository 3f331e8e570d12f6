"""Look over a database for what keeps the worker from its work, or makes it slow or wrong.

Each family of checks has a file. A check is a function that is given a read-only transaction of its
own and yields what it finds; one that fails or takes too long says so in its own line and hides no
other. None reads the whole ledger: figures come from the catalogue, from the statistics (and say
so), or from probes that stop at a limit.
"""

from store.diagnosis.examination import NEEDING_THE_DATABASE, diagnose
from store.diagnosis.finding import (
    Deployment,
    Finding,
    Thresholds,
    error,
    not_made,
    ok,
    warning,
)

__all__ = [
    "NEEDING_THE_DATABASE",
    "Deployment",
    "Finding",
    "Thresholds",
    "diagnose",
    "error",
    "not_made",
    "ok",
    "warning",
]
