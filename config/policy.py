"""Which rows retention may touch, scope by scope, as one TOML file says.

`[defaults]` holds for every scope, and an `[[override]]` for the scopes that its `match` fits. Per
field the most specific override that sets it wins; "off" takes an arm away from its scopes. An arm
that nothing sets is not applied: without a policy nothing is deleted.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Final, Self, TypedDict

from config.durations import format_duration
from config.errors import PolicyError, shown
from config.globs import Glob
from config.guards import DEFAULT_GUARDS, GuardPolicy, read_guards, too_short
from config.toml_table import OFF, TomlTable
from config.windows import Windows, read_windows

ARMS: Final = ("max_age", "keep", "stale_running_max_age", "stale_claim_max_age")
SCHEDULED_JOBS: Final = (
    "reap",
    "flip_stale_running",
    "reconcile_parked",
    "release_sessions",
    "drain_harvest",
    "housekeeping",
)
DEFAULT_RELEASE_DELAY: Final = timedelta(minutes=10)
NO_POLICY_FILE: Final = "no policy file"
_FILE_KEYS: Final = (
    "allow_short_retention",
    "release_delay",
    "undo_window",
    "schedule",
    "windows",
    "guards",
    "defaults",
    "override",
)
# How often the flip watches where the file does not say.
DEFAULT_FLIP_PERIOD: Final = timedelta(minutes=1)
# How much of half the shortest stale age its period may be. WHY not all: a tick a little late would
# count as a gap, and hold every flip.
_WATCH_SHARE: Final = 0.9
_SHORTEST_PERIOD: Final = timedelta(seconds=1)
_LONGEST_PERIOD: Final = timedelta(hours=24)


class Arms(TypedDict, total=False):
    """What one layer sets: an absent key is not set here, None is switched off here."""

    max_age: timedelta | None
    keep: int | None
    stale_running_max_age: timedelta | None
    stale_claim_max_age: timedelta | None


@dataclass(frozen=True, slots=True)
class ScopePolicy:
    """What holds for one scope; None means that the arm is not applied to it.

    `keep` counts terminal rows; an age of zero is a limit, not an absence.
    """

    max_age: timedelta | None = None
    keep: int | None = None
    stale_running_max_age: timedelta | None = None
    stale_claim_max_age: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Override:
    """What one `[[override]]` sets for the scopes that its glob fits."""

    glob: Glob
    sets: Arms
    position: int  # In the file, from 1.


@dataclass(frozen=True, slots=True)
class Rule:
    """Where the value of one field comes from, for a person.

    `value` is as in the file, "off" or "not set"; `beaten` holds what also fits the scope and sets
    the field, the strongest first.
    """

    field: str
    value: str
    source: str
    beaten: tuple["Rule", ...] = ()


@dataclass(frozen=True)
class Policy:
    """The whole policy file. `schedule` holds the period of each job that has one of its own.

    `windows` holds when the schedule may let a job work, of each job that may not always. `path`
    and `digest` (SHA-256, in hexadecimal) are of the file as it was read, if there is one.
    """

    defaults: Arms = field(default_factory=Arms)
    overrides: tuple[Override, ...] = ()
    release_delay: timedelta = DEFAULT_RELEASE_DELAY
    undo_window: timedelta | None = None  # For how long a deleted row is kept; None: it is not.
    schedule: Mapping[str, timedelta] = field(default_factory=dict)
    windows: Mapping[str, Windows] = field(default_factory=dict)
    allow_short_retention: bool = False
    guards: GuardPolicy = DEFAULT_GUARDS
    source: str = NO_POLICY_FILE
    path: Path | None = field(default=None, compare=False)
    digest: str | None = field(default=None, compare=False)

    @classmethod
    def empty(cls) -> Self:
        """The policy without a file: no arm is applied, so nothing is deleted or flipped."""
        return cls()

    def replaced(self, everywhere: ScopePolicy, source: str) -> Self:
        """One rule for every scope in place of the arms; what else the file says stays.

        Unless the rule has a stale age, each scope's own stays as well: a reap never flips by it,
        but guards by it how long a flipped row is left for its writer to correct. `source` names
        where the rule comes from.
        """
        arms = type(self).of(everywhere, source).defaults
        if "stale_running_max_age" in arms:
            return replace(self, defaults=arms, overrides=(), source=source)
        kept = (replace(it, sets=_stale_age(it.sets)) for it in self.overrides)
        return replace(
            self,
            defaults=_stale_age(self.defaults) | arms,
            overrides=tuple(it for it in kept if it.sets),
            source=source,
        )

    @classmethod
    def of(cls, everywhere: ScopePolicy, source: str) -> Self:
        """One rule for every scope, as the flags of a command give it."""
        arms = Arms()
        if everywhere.max_age is not None:
            arms["max_age"] = everywhere.max_age
        if everywhere.keep is not None:
            arms["keep"] = everywhere.keep
        if everywhere.stale_running_max_age is not None:
            arms["stale_running_max_age"] = everywhere.stale_running_max_age
        if everywhere.stale_claim_max_age is not None:
            arms["stale_claim_max_age"] = everywhere.stale_claim_max_age
        return cls(defaults=arms, source=source)

    def for_scope(self, scope: str) -> ScopePolicy:
        """What holds for this scope, each field from the strongest layer that sets it."""
        arms = self.defaults.copy()
        for override in reversed(self._fitting(scope)):
            arms.update(override.sets)
        return ScopePolicy(
            arms.get("max_age"),
            arms.get("keep"),
            arms.get("stale_running_max_age"),
            arms.get("stale_claim_max_age"),
        )

    @property
    def shortest_stale_age(self) -> timedelta | None:
        """The shortest `stale_running_max_age` that any scope has; None: no scope has one."""
        layers = (self.defaults, *(override.sets for override in self.overrides))
        ages = [age for sets in layers if (age := sets.get("stale_running_max_age")) is not None]
        return min(ages, default=None)

    def explain(self, scope: str) -> list[Rule]:
        """For each field of `for_scope`, the value and which part of the file gave it."""
        layers: list[tuple[str, Arms]] = [
            (self._named(override), override.sets) for override in self._fitting(scope)
        ]
        layers.append(("defaults", self.defaults))
        return [_rule(arm, layers) for arm in ARMS]

    def _fitting(self, scope: str) -> list[Override]:
        """The overrides that fit, the strongest first."""
        by_prefix, prefix_lengths = self._index
        fitting = [
            (rank, override)
            for length in prefix_lengths
            if length <= len(scope)
            for rank, override in by_prefix.get(scope[:length], ())
            if override.glob.fits(scope)
        ]
        fitting.sort()
        return [override for _, override in fitting]

    @cached_property
    def _index(self) -> tuple[dict[str, list[tuple[int, Override]]], list[int]]:
        """The overrides with their ranks (0 is the strongest) by what their scopes begin with.

        WHY: where each tenant has an override of its own, a scope would else try every one.
        """
        strongest_first = sorted(
            self.overrides, key=lambda it: (it.glob.specificity, it.position), reverse=True
        )
        by_prefix: dict[str, list[tuple[int, Override]]] = {}
        for rank, override in enumerate(strongest_first):
            by_prefix.setdefault(override.glob.prefix, []).append((rank, override))
        return by_prefix, sorted({len(prefix) for prefix in by_prefix})

    def _named(self, override: Override) -> str:
        return f"override {shown(override.glob.text)} ({self.source}, override {override.position})"


def load_policy(path: Path, *, floors: bool = True) -> Policy:
    """The policy in this file. Raises PolicyError, which names every problem of the file.

    `floors` False: ages that are almost always a slip are taken as they are.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise PolicyError(
            f"{path}: there is no such policy file; correct the path, or name no policy file to "
            "delete nothing."
        ) from None
    except OSError as error:
        raise PolicyError(
            f"{path}: the policy file cannot be read ({error.strerror}); make it a readable file."
        ) from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PolicyError(
            f"{path.name}: line {line} is not UTF-8 (byte 0x{content[error.start]:02x}); save the "
            "file as UTF-8."
        ) from error
    policy = parse_policy(text, path.name, floors=floors)
    return replace(policy, path=path, digest=hashlib.sha256(content).hexdigest())


def parse_policy(text: str, source: str, *, floors: bool = True) -> Policy:
    """The policy in this text; `source` names it in messages. Raises PolicyError for all of it."""
    file = TomlTable.parse(text, source, _FILE_KEYS)
    release_delay = file.duration("release_delay")
    defaults, overrides = read_layers(file)
    policy = Policy(
        defaults=defaults,
        overrides=overrides,
        release_delay=DEFAULT_RELEASE_DELAY if release_delay is None else release_delay,
        # WHY none where it is zero: what is kept for no time cannot be brought back.
        undo_window=file.duration("undo_window", may_be_off=True) or None,
        schedule=_schedule(file.table("schedule")),
        windows=read_windows(file.table("windows"), SCHEDULED_JOBS),
        allow_short_retention=file.boolean("allow_short_retention") or False,
        guards=read_guards(file.table("guards")),
        source=source,
    )
    if floors and not policy.allow_short_retention:
        meant = "say allow_short_retention = true at the top of the file if it is meant"
        refuse_slips(file, policy, meant)
    _refuse_rare_watch(file, policy)
    if file.problems:
        raise PolicyError(*file.problems)
    return policy


def read_layers(file: TomlTable) -> tuple[Arms, tuple[Override, ...]]:
    """The arms that hold for every scope, and those of the overrides."""
    return _arms(file.table("defaults"), also_known=()), tuple(_overrides(file))


def refuse_slips(file: TomlTable, policy: Policy, meant: str) -> None:
    """Refuse ages and numbers that hardly anybody means; `meant` says how somebody may mean one."""
    layers: list[tuple[str, Arms]] = [("[defaults]", policy.defaults)]
    layers += [
        (f"override {it.position} ({shown(it.glob.text)})", it.sets) for it in policy.overrides
    ]
    for place, arms in layers:
        for arm, value in (
            ("max_age", arms.get("max_age")),
            ("keep", arms.get("keep")),
            ("stale_running_max_age", arms.get("stale_running_max_age")),
        ):
            problem = too_short(arm, value, policy.guards)
            if problem is not None:
                file.named(place).refuse(
                    f"{arm} = {_worded(value)} {problem}; correct it, or {meant}"
                )


def _refuse_rare_watch(file: TomlTable, policy: Policy) -> None:
    """Refuse a schedule under which the outage guard would hold every flip there is."""
    named = policy.schedule.get("flip_stale_running")
    period = DEFAULT_FLIP_PERIOD if named is None else named
    shortest = policy.shortest_stale_age
    if shortest is None or not policy.guards.outage or period <= shortest / 2 * _WATCH_SHARE:
        return
    longest = shortest / 2 * _WATCH_SHARE
    more_often = (
        f"run it at least every {_worded(longest)}, or " if longest >= _SHORTEST_PERIOD else ""
    )
    said = _worded(period) if named is not None else f"{_worded(period)}, the default,"
    file.named("[schedule]").refuse(
        f"flip_stale_running = {said} is too close to half of the shortest stale_running_max_age "
        f"({_worded(shortest)}): a tick that is a little late would make the outage guard hold "
        f"every flip; {more_often}set outage = false under [guards]"
    )


def _arms(table: TomlTable, also_known: tuple[str, ...]) -> Arms:
    table.refuse_unknown_keys((*also_known, *ARMS))
    arms = Arms()
    if "max_age" in table.values:
        arms["max_age"] = table.duration("max_age", may_be_off=True)
    if "keep" in table.values:
        arms["keep"] = table.count_or_off("keep")
    if "stale_running_max_age" in table.values:
        arms["stale_running_max_age"] = table.duration("stale_running_max_age", may_be_off=True)
    if "stale_claim_max_age" in table.values:
        arms["stale_claim_max_age"] = table.duration("stale_claim_max_age", may_be_off=True)
    return arms


def _overrides(file: TomlTable) -> Iterator[Override]:
    positions: dict[str, int] = {}
    for position, unnamed in enumerate(file.tables("override"), start=1):
        match = unnamed.text("match")
        table = unnamed.named(f"override {position} ({shown(match)})") if match else unnamed
        sets = _arms(table, also_known=("match",))
        if "match" not in table.values:
            table.refuse('has no match; write one, such as match = "tenant-a/*"')
        elif set(table.values) == {"match"}:
            table.refuse(f"sets nothing; set one of {', '.join(ARMS)}, or remove it")
        if match is None:
            continue
        first = positions.setdefault(match, position)
        if first != position:
            table.refuse(f"has the same match as override {first}; make one override of the two")
        yield Override(Glob(match), sets, position)


def _schedule(table: TomlTable) -> dict[str, timedelta]:
    table.refuse_unknown_keys(SCHEDULED_JOBS)
    periods: dict[str, timedelta] = {}
    for job in SCHEDULED_JOBS:
        period = table.duration(job)
        if period is None:
            continue
        if not _SHORTEST_PERIOD <= period <= _LONGEST_PERIOD:
            table.refuse_value(job, 'is not a period from "1s" to "24h"; write one, such as "10m"')
        periods[job] = period
    return periods


def _stale_age(sets: Arms) -> Arms:
    """Of what a layer sets, the stale age alone."""
    if "stale_running_max_age" not in sets:
        return Arms()
    return Arms(stale_running_max_age=sets["stale_running_max_age"])


def _rule(arm: str, layers: list[tuple[str, Arms]]) -> Rule:
    """What the strongest layer that sets this arm says, and below it what the others say."""
    said = [Rule(arm, _worded(sets.get(arm)), source) for source, sets in layers if arm in sets]
    if not said:
        return Rule(arm, "not set", "not set")
    return replace(said[0], beaten=tuple(said[1:]))


def _worded(value: object) -> str:
    if value is None:
        return OFF
    return format_duration(value) if isinstance(value, timedelta) else str(value)
