"""The queries of the dashboards, built so that any number of processes counts as one.

Every process shows the same figures of one database. So each selector stands in
`max without (instance, pod)`, without the scrape's `job` where a metric has none of its own, and
what a count rose by is taken per process first: a process that is new starts with a high count,
which is no rise.
"""

import re
from typing import Final

from worker.metrics import METRICS

_WITH_JOB: Final = {metric.name for metric in METRICS if "job" in metric.labels}
_PART: Final = re.compile("_(bucket|sum|count)$")
_CHOSEN: Final = 'namespace=~"$namespace"'
SELECTED: Final = f"{{{_CHOSEN}}}"


def _any_process(metric: str, query: str) -> str:
    """The query whichever process is asked, and by whichever scrape."""
    own = metric in _WITH_JOB or _PART.sub("", metric) in _WITH_JOB
    return f"max without ({'instance, pod' if own else 'instance, pod, job'}) ({query})"


def shown(metric: str, **labels: str) -> str:
    """The value of a metric now, whichever process says so; with these labels, if any."""
    chosen = ", ".join([_CHOSEN, *(f'{name}="{value}"' for name, value in labels.items())])
    return _any_process(metric, f"{metric}{{{chosen}}}")


def rise(metric: str, over: str) -> str:
    """What a count rose by within a time, whichever process says so.

    WHY `delta`: no restart lowers these counts, since they are sums over the database; a restore of
    that does, and `increase` would take it for a huge rise.
    """
    return _any_process(metric, f"delta({metric}{SELECTED}[{over}])")


def rose(metric: str) -> str:
    """What a count rose by between two points of a graph."""
    return rise(metric, "$__rate_interval")


def age_in_periods() -> str:
    """For how many of its own periods each job has not done its work."""
    since = f"time() - {shown('maintenance_job_last_completed_timestamp_seconds')}"
    return f"({since}) / {shown('maintenance_job_interval_seconds')}"


def late_jobs(periods: int) -> str:
    """How many jobs have not done their work for so many periods, or never."""
    return f"count({age_in_periods()} > {periods}) or vector(0)"


def duration(quantile: float, over: str) -> str:
    """How long a share of each job's runs took at most."""
    buckets = rise("maintenance_job_duration_seconds_bucket", over)
    return f"histogram_quantile({quantile}, {buckets})"


def mean_duration(over: str) -> str:
    """How long each job's runs took on average."""
    took, ran = (
        rise(f"maintenance_job_duration_seconds_{part}", over) for part in ("sum", "count")
    )
    return f"{took} / {ran}"
