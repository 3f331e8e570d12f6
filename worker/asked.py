"""Whether an operator's request can be done here, and by which policy. Only its row counts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from config.durations import format_duration
from config.errors import ConfigError
from config.policy import Policy
from config.requested import NEEDED_ARMS, names_nothing, requested_policy
from store.guards import LIFTABLE, not_lifted
from store.requests import LeftToOthers, Request
from worker.jobs import JOBS

# What a request may ask to be lifted.
GUARDS: Final = (*LIFTABLE, "all")
_REQUESTED_BY_MAX = 500


def policy_for(job: str, arms: Any, lifted: Sequence[str], file: Policy) -> Policy:
    """The request's own policy, or this worker's policy file where it has none.

    Raises PolicyError for arms that cannot be read.
    """
    if arms is None:
        return file
    return requested_policy(arms, job, file, floors=not {"floors", "all"} & set(lifted))


def problem_of(request: Request, now: int, file: Policy, expires: timedelta) -> str | None:
    """Why the request is refused, in one sentence; None: it can be done.

    `now` is the database's time; what is older than `expires` may not be meant any more. Raises
    LeftToOthers for what this release does not know.
    """
    # WHY in numbers: any number may stand there, and not every one is a span of time.
    waited_ms = now - request.requested_at
    expired = waited_ms > expires // timedelta(milliseconds=1)
    if not expired and not (request.job in JOBS and {*request.overrides} <= {*GUARDS, "", None}):
        # WHY not refused: a newer release beside this one may know it.
        raise LeftToOthers
    if request.job not in JOBS:
        return "there is no such job in this release"
    if expired:
        return f"nobody took it within {format_duration(expires)}; ask again if it is still meant"
    if problem := _malformed(request):
        return problem
    scopes = None if request.scopes is None else [scope or "" for scope in request.scopes]
    lifted = [guard or "" for guard in request.overrides]
    try:
        policy = policy_for(request.job, request.policy, lifted, file)
    except ConfigError as error:
        return " ".join(error.problems)
    if names_nothing(policy, request.job, scopes):
        where = "any scope" if scopes is None else "the scopes that are named"
        arms = " and no ".join(NEEDED_ARMS[request.job])
        return f"the policy ({policy.source}) sets no {arms} for {where}"
    return None


def _is_name(scope: object) -> bool:
    """Whether it is a text with something in it; an array of arrays may stand there as well."""
    return isinstance(scope, str) and scope != ""


def _malformed(request: Request) -> str | None:
    if request.scopes is not None:
        if not request.scopes or not all(_is_name(scope) for scope in request.scopes):
            return "it names no scope, or an empty one; name scopes, or none at all for every one"
        if request.job == "audit_memory":
            return "audit_memory knows no scopes"
    if unknown := [guard for guard in request.overrides if guard not in GUARDS]:
        return f"there is no guard {str(unknown[0])[:80]!r} that could be lifted"
    if problem := not_lifted(request.job, [guard for guard in request.overrides if guard]):
        return problem
    if not request.requested_by.strip() or len(request.requested_by) > _REQUESTED_BY_MAX:
        return "it does not say in so many words who asks"
    return None
