"""Write docs/configuration.md from the models that read the settings and the policy; `make docs`.

Names, defaults and limits come from the code. What a key of the policy file means is said here, and
a key that nobody explains here fails the writing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Final

from config.durations import format_duration
from config.guards import (
    DEFAULT_GUARDS,
    SHORTEST_MAX_AGE,
    STALE_HEARTBEATS_MIN,
)
from config.policy import ARMS, DEFAULT_RELEASE_DELAY, SCHEDULED_JOBS, Policy
from config.reference import settings_reference
from worker.schedule import SCHEDULE

FILE: Final = Path(__file__).parents[1] / "docs" / "configuration.md"

_GROUPS: Final = (
    ("Database", ("DATABASE_URL", "LEDGER_SCHEMA", "DATA_DIR")),
    ("Broker", ("BROKER_URL", "BROKER_USER", "BROKER_PASSWORD")),
    ("Policy", ("POLICY_FILE",)),
    ("Processes", ("HTTP_ADDRESS", "LIVENESS_LIMIT", "LOG_", "WORKER_", "REQUEST_EXPIRES")),
    (
        "Limits of one statement, batch and part",
        ("STATEMENT_", "LOCK_", "IDLE_", "CONNECT_", "JOB_", "SCOPES_", "ROWS_", "MAX_", "REPL"),
    ),
    ("How long things are kept", ("JOURNAL_", "RUN_", "HARVEST_")),
    ("Transcripts", ("RELEASE_",)),
)

_TOP: Final = {
    "release_delay": (
        format_duration(DEFAULT_RELEASE_DELAY),
        "How long a transcript outlives its row at least, so that a revival elsewhere can show.",
    ),
    "undo_window": ("off", "For how long a deleted row and its transcript can be restored."),
    "allow_short_retention": (
        "false",
        (
            "true: ages and numbers that are almost always a slip are meant. Without it refused: "
            f"`max_age` under {format_duration(SHORTEST_MAX_AGE)}, `stale_running_max_age` under "
            f"{format_duration(DEFAULT_GUARDS.shortest_stale_age)} or {STALE_HEARTBEATS_MIN} "
            "heartbeats, and `keep = 0`."
        ),
    ),
}
_ARMS: Final = {
    "max_age": "Finished rows are deleted so long after they settled.",
    "keep": "Of a scope's finished rows only so many stay, the newest; the rest is deleted.",
    "stale_running_max_age": "Running rows whose writer was silent for longer become failed.",
    "stale_claim_max_age": "A resume that was claimed and never finished is undone after this.",
}
_GUARDS: Final = {
    "heartbeat": "How often writers renew their running rows.",
    "missing_checkpoint_sighting": "How long a checkpoint must be seen missing.",
    "live_writer_sighting": "How long a verdict on a row must stand whose writer lives.",
    "breaker_hold": "How long flips are held when nearly everything looks silent at once.",
    "breaker_share": "At most this share of a scope's rows is deleted or flipped in one run; "
    "over 0, up to 1, or `off`.",
    "breaker_rows": "At most so many rows of a scope are deleted or flipped in one run, or `off`.",
    "sightings": "false: silence and absence are acted on at first sight.",
    "outage": "false: flips are not held after an outage, nor when everything looks silent.",
    "fresh_flips": "false: a flipped row may be deleted as soon as its age says so.",
    "plausible_times": "false: rows of impossible times are deleted like others.",
}


def document() -> str:
    """The whole file."""
    return "\n".join(["# Configuration", "", *_introduction(), *_settings(), *_policy(), ""])


def _introduction() -> Iterator[str]:
    yield "Written by `make docs` from the code that reads it: names, defaults and limits are those"
    yield "in force. [README.md](../README.md#policy) says how policy and guards work, with"
    yield "examples; [production.md](production.md) what to set where."
    yield ""
    yield "A span of time is a number and a unit (`ms`, `s`, `m`, `h`, `d`, `w`), such as"
    yield '`"1h30m"` or `"30d"`.'
    yield ""


def _table(heading: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(heading)} |"
    yield "|---" * len(heading) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _settings() -> Iterator[str]:
    """The variables by what they are about; one that no group knows fails."""
    yield "## Settings"
    yield ""
    yield "Variables of the environment, the same for every process. White space around a value is"
    yield "ignored, and an empty one counts as unset. A name that begins with `MAINT_` and is none"
    yield "of these is refused, and so is a value that cannot be used: exit 2, one sentence each."
    yield ""
    left = {name.removeprefix("MAINT_"): row for row in settings_reference() for name in row[:1]}
    for title, beginnings in _GROUPS:
        names = [name for name in left if name.startswith(beginnings)]
        yield f"### {title}"
        yield ""
        rows = [left.pop(name) for name in names]
        yield from _table(
            ("variable", "default", "meaning"),
            ((f"`{name}`", default, meaning) for name, default, meaning in rows),
        )
    if left:
        raise ValueError(f"no group of docs/configuration.md has {', '.join(left)}")


def _policy() -> Iterator[str]:
    yield "## Policy file"
    yield ""
    yield "TOML, named by `MAINT_POLICY_FILE`; `sema-maintenance policy check FILE` reads one"
    yield "without acting on it. A worker and a beat read theirs as they start. Unknown keys are"
    yield "refused."
    yield ""
    yield "### At the top"
    yield ""
    tables = {"schedule", "windows", "guards", "defaults", "overrides"}
    known = {each.name for each in fields(Policy)} - {"source", "path", "digest"}
    _explained("the top of the policy file", known - tables, _TOP)
    top = ((f"`{key}`", default, meaning) for key, (default, meaning) in _TOP.items())
    yield from _table(("key", "default", "meaning"), top)
    yield "### `[defaults]` and each `[[override]]`"
    yield ""
    yield "An override has a `match`, a case-sensitive glob over the whole scope; the most specific"
    yield 'that sets a key wins. `"off"` switches an arm off, and one that nothing sets is off:'
    yield "without a policy no row is deleted."
    yield ""
    _explained("[defaults]", set(ARMS), _ARMS)
    kinds = {"keep": "a whole number"}
    arms = ((f"`{arm}`", kinds.get(arm, "a span"), _ARMS[arm]) for arm in ARMS)
    yield from _table(("key", "value", "meaning"), arms)
    yield "### `[schedule]`"
    yield ""
    yield 'Ticks come at UTC multiples of these periods, from `"1s"` to `"24h"`.'
    yield ""
    periods = {entry.job: format_duration(entry.every) for entry in SCHEDULE}
    _explained("[schedule]", set(SCHEDULED_JOBS), periods)
    yield from _table(("key", "default"), ((f"`{job}`", periods[job]) for job in SCHEDULED_JOBS))
    yield "### `[windows]`"
    yield ""
    yield "When the schedule may let a job work, in UTC: a list such as"
    yield '`["22:00-06:00", "Sat,Sun 00:00-24:00"]` by job. A job that is left out may at any time.'
    yield "The jobs are those of `[schedule]`."
    yield ""
    yield "### `[guards]`"
    yield ""
    yield "What keeps a judgement from being acted on at once ([README](../README.md#guards))."
    yield ""
    guards = DEFAULT_GUARDS.values()
    _explained("[guards]", set(guards), _GUARDS)
    rows = ((f"`{key}`", _worded(value), _GUARDS[key]) for key, value in guards.items())
    yield from _table(("key", "default", "meaning"), rows)


def _explained(place: str, keys: set[str], said: Iterable[str]) -> None:
    if keys != {*said}:
        raise ValueError(f"{place}: explained are {sorted(said)}, and there are {sorted(keys)}")


def _worded(value: object) -> str:
    match value:
        case None:
            return "off"
        case bool():
            return str(value).lower()
        case timedelta():
            return format_duration(value)
        case _:
            return str(value)


def main() -> None:
    """Write the file anew."""
    FILE.write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main()
