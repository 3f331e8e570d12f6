"""The guards of the scheduled jobs as the policy file sets them, and the floors under retention.

`[guards]` holds for every scope. Every measure has a default that suits writers which renew their
rows once a minute; a guard that is set to false does not hold for anybody. No measure is zero: a
guard is switched off by that word alone, and a limit by "off".
"""

from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Final

from config.durations import format_duration
from config.toml_table import TomlTable

SHORTEST_MAX_AGE: Final = timedelta(hours=1)
SHORTEST_STALE_AGE: Final = timedelta(minutes=10)
STALE_HEARTBEATS_MIN: Final = 10
_SHORTEST: Final = timedelta(milliseconds=1)
_LONGEST: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class GuardPolicy:
    """What `[guards]` says; the names are its keys.

    `breaker_share` (over 0, up to 1) and `breaker_rows` limit what one run deletes or flips of one
    scope's rows; None is no limit. `named` are the keys that the file sets.
    """

    heartbeat: timedelta = timedelta(seconds=60)
    missing_checkpoint_sighting: timedelta = timedelta(seconds=60)
    live_writer_sighting: timedelta = timedelta(minutes=10)
    breaker_hold: timedelta = timedelta(minutes=15)
    breaker_share: float | None = None
    breaker_rows: int | None = None
    sightings: bool = True
    outage: bool = True
    fresh_flips: bool = True
    plausible_times: bool = True
    named: frozenset[str] = field(default=frozenset(), compare=False)

    def values(self) -> dict[str, object]:
        """Each key with the value that is in force, named by the file or not."""
        return {name: getattr(self, name) for name in _KEYS}

    @property
    def shortest_stale_age(self) -> timedelta:
        """The floor under `stale_running_max_age`. A short heartbeat does not lower it."""
        return max(SHORTEST_STALE_AGE, STALE_HEARTBEATS_MIN * self.heartbeat)


DEFAULT_GUARDS: Final = GuardPolicy()
_KEYS: Final = tuple(each.name for each in fields(GuardPolicy) if each.compare)


def read_guards(table: TomlTable) -> GuardPolicy:
    """The guards that the table sets; what it leaves out has its default."""
    table.refuse_unknown_keys(_KEYS)
    default = DEFAULT_GUARDS
    return GuardPolicy(
        heartbeat=_measure(table, "heartbeat", default.heartbeat),
        missing_checkpoint_sighting=_measure(
            table, "missing_checkpoint_sighting", default.missing_checkpoint_sighting
        ),
        live_writer_sighting=_measure(table, "live_writer_sighting", default.live_writer_sighting),
        breaker_hold=_measure(table, "breaker_hold", default.breaker_hold),
        breaker_share=table.share_or_off("breaker_share"),
        breaker_rows=table.count_or_off("breaker_rows", least=1),
        sightings=_switch(table, "sightings"),
        outage=_switch(table, "outage"),
        fresh_flips=_switch(table, "fresh_flips"),
        plausible_times=_switch(table, "plausible_times"),
        named=frozenset(table.values),
    )


def _measure(table: TomlTable, key: str, default: timedelta) -> timedelta:
    measure = table.duration(key)
    if measure is None:
        return default
    if not _SHORTEST <= measure <= _LONGEST:
        table.refuse_value(
            key,
            f"is not a time from {format_duration(_SHORTEST)} to {format_duration(_LONGEST)}; "
            'write one, such as "60s"',
        )
    return measure


def _switch(table: TomlTable, key: str) -> bool:
    """Whether a guard holds: unless the file says that it does not."""
    return table.boolean(key) is not False


def too_short(
    arm: str, value: timedelta | int | None, guards: GuardPolicy = DEFAULT_GUARDS
) -> str | None:
    """Why the value of an arm is almost always a slip, as a sentence without its subject."""
    match arm, value:
        case "max_age", timedelta() if value < SHORTEST_MAX_AGE:
            return f"is under {format_duration(SHORTEST_MAX_AGE)}"
        case "stale_running_max_age", timedelta() if value < guards.shortest_stale_age:
            return (
                f"is under {format_duration(guards.shortest_stale_age)}, or "
                f"{STALE_HEARTBEATS_MIN} heartbeats"
            )
        case "keep", 0:
            return "keeps no finished row at all"
        case _:
            return None
