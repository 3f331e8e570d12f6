"""What an operator's request may say of retention: the arms of one job, in the policy file's words.

A request travels as a row that others can write, so its words are judged as a policy file's are,
by whoever carries it out.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from config.durations import format_duration
from config.errors import PolicyError
from config.guards import too_short
from config.policy import Policy, ScopePolicy
from config.toml_table import TomlTable

# The arms that each job knows.
ARMS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "reap": ("max_age", "keep"),
    "flip_stale_running": ("stale_running_max_age",),
    "reconcile_parked": ("stale_claim_max_age",),
}
# A job that is not here has something to do without any arm.
NEEDED_ARMS: Final[Mapping[str, tuple[str, ...]]] = {
    job: ARMS_OF[job] for job in ("reap", "flip_stale_running")
}


def names_nothing(policy: Policy, job: str, scopes: Sequence[str] | None) -> bool:
    """Whether the policy gives the job nothing to do in these scopes; None: in any."""
    arms = NEEDED_ARMS.get(job)
    if arms is None:
        return False
    if scopes is None:
        layers = [policy.defaults, *(override.sets for override in policy.overrides)]
        return not any(layer.get(arm) is not None for layer in layers for arm in arms)
    resolved = [policy.for_scope(scope) for scope in scopes]
    return not any(getattr(each, arm) is not None for each in resolved for arm in arms)


def arms_in_words(arms: Mapping[str, timedelta | int | None]) -> dict[str, str | int]:
    """The arms that are given, as `requested_policy` reads them again."""
    return {
        arm: format_duration(value) if isinstance(value, timedelta) else value
        for arm, value in arms.items()
        if value is not None
    }


def requested_policy(arms: object, job: str, file: Policy, *, floors: bool) -> Policy:
    """The policy of a request: its arms for every scope, and what else the policy file says.

    Raises PolicyError with every problem. `floors` False: values that are almost always a slip are
    taken as they are.
    """
    if not isinstance(arms, Mapping):
        raise PolicyError("the request's policy is not an object of arms and their values.")
    table = TomlTable(arms, place="", source="the request's policy", file_keys=(), problems=[])
    known = ARMS_OF.get(job, ())
    if not known:
        raise PolicyError(f"the request's policy sets arms, and {job} has none.")
    table.refuse_unknown_keys(known)
    ages: dict[str, timedelta | None] = {}
    keep: int | None = None
    for arm in known:
        if arms.get(arm) is None:
            continue
        value: timedelta | int | None
        if arm == "keep":
            value = keep = table.count_or_off(arm)
        else:
            value = ages[arm] = table.duration(arm)
        problem = too_short(arm, value, file.guards)
        if value is None and not table.problems:
            table.refuse_value(arm, "sets nothing; leave it out")
        elif problem is not None and floors and not file.allow_short_retention:
            table.refuse_value(arm, f"{problem}; lift the guard floors if it is meant")
    if all(arms.get(arm) is None for arm in known) and not table.problems:
        table.refuse("sets none of " + ", ".join(known))
    if table.problems:
        raise PolicyError(*table.problems)
    given = ScopePolicy(
        max_age=ages.get("max_age"),
        keep=keep,
        stale_running_max_age=ages.get("stale_running_max_age"),
        stale_claim_max_age=ages.get("stale_claim_max_age"),
    )
    return file.replaced(given, source="the request")
