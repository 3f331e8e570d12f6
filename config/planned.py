"""The arms of a policy as a plan holds them: in the policy file's words, and read again."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from config.durations import format_duration
from config.errors import PolicyError
from config.policy import Arms, Policy, read_layers, refuse_slips
from config.toml_table import OFF, TomlTable

_KEYS = ("defaults", "override")


def written(policy: Policy) -> dict[str, object]:
    """What every layer of the policy says of the arms; the rest of it is not the plan's."""
    overrides = [{"match": it.glob.text, **_worded(it.sets)} for it in policy.overrides]
    return {"defaults": _worded(policy.defaults), "override": overrides}


def read(document: object, file: Policy, *, floors: bool) -> Policy:
    """The arms of a plan in place of those of the policy file. Raises PolicyError.

    `floors` False: values that are almost always a slip are taken as they are.
    """
    if not isinstance(document, Mapping):
        raise PolicyError("the plan's policy is not an object of arms and their values.")
    table = TomlTable(document, "", "the plan's policy", file_keys=(), problems=[])
    table.refuse_unknown_keys(_KEYS)
    defaults, overrides = read_layers(table)
    policy = replace(file, defaults=defaults, overrides=overrides, source="the plan")
    if floors and not file.allow_short_retention:
        refuse_slips(table, policy, "plan and apply with --override floors if it is meant")
    if table.problems:
        raise PolicyError(*table.problems)
    return policy


def _worded(sets: Arms) -> dict[str, object]:
    return {
        arm: OFF
        if value is None
        else format_duration(value)
        if isinstance(value, timedelta)
        else value
        for arm, value in sets.items()
    }
