"""Read a TOML file key by key, and collect every problem in it as a sentence of its own."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Self

from config.durations import parse_duration
from config.errors import ConfigError, PolicyError, did_you_mean, shown

OFF: Final = "off"
_COUNT_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TomlTable:
    """One table of a file. A value that is refused reads as None and leaves a problem behind.

    So the caller may go on reading, and looks at `problems`, one list for the whole file, before
    it uses anything.
    """

    values: Mapping[str, object]
    place: str  # Its heading as a person knows it; empty for the file itself.
    source: str
    file_keys: tuple[str, ...]
    problems: list[str]

    @classmethod
    def parse(cls, text: str, source: str, keys: tuple[str, ...]) -> Self:
        """The file itself, which has these keys. Raises PolicyError for what is not TOML."""
        try:
            values = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            why = str(error).partition(";")[0]
            raise PolicyError(
                f"{source}: this is not TOML: {why}; correct it there, and write a text such as "
                '"30d" in quotes.'
            ) from error
        file = cls(values, place="", source=source, file_keys=keys, problems=[])
        file.refuse_unknown_keys(keys)
        return file

    def named(self, place: str) -> Self:
        """The same table under a heading that says more."""
        return replace(self, place=place)

    def refuse(self, sentence: str) -> None:
        """Keep a problem of the whole table, without its full stop."""
        subject = f"{self.place} {sentence}" if self.place else sentence
        stop = "" if sentence.endswith("?") else "."
        self.problems.append(f"{self.source}: {subject}{stop}")

    def refuse_value(self, key: str, reason: str) -> None:
        """Keep a problem of one value: why it cannot be used; after a semicolon, the remedy."""
        self.refuse(f"{key} = {shown(self.values[key])} {reason}")

    def refuse_unknown_keys(self, known: tuple[str, ...]) -> None:
        """Keep a problem for each key that is none of these."""
        for key in self.values:
            if key in known:
                continue
            meant = did_you_mean(key, known)
            if key in self.file_keys:
                remedy = "move it to the top of the file, above the first heading"
            elif meant is not None:
                remedy = f'did you mean "{meant}"?'
            else:
                remedy = f"the keys here are {', '.join(known)}"
            self.refuse_value(key, f"is not a known key; {remedy}")

    def table(self, key: str) -> Self:
        """The table under this key; an empty one when there is none."""
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            self.refuse_value(key, f"is not a table; write a heading [{key}] and its keys below")
            value = {}
        return replace(self, values=value, place=f"[{key}]")

    def tables(self, key: str) -> Iterator[Self]:
        """The tables under a heading that may be repeated, in the order of the file."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            self.refuse_value(key, f"is not a list of tables; write [[{key}]] in double brackets")
            return
        for position, each in enumerate(value, start=1):
            yield replace(self, values=each, place=f"{key} {position}")

    def boolean(self, key: str) -> bool | None:
        """True or false; None when absent."""
        value = self.values.get(key)
        if value is None or isinstance(value, bool):
            return value
        self.refuse_value(key, "is neither true nor false; write one of them without quotes")
        return None

    def text(self, key: str) -> str | None:
        """A text that is not empty; None when absent."""
        value = self.values.get(key)
        if value is None or (isinstance(value, str) and value):
            return value
        self.refuse_value(key, "is not a text with something in it; write one in quotes")
        return None

    def texts(self, key: str) -> list[str] | None:
        """A list of texts, one of them by itself included; None when absent."""
        value = self.values.get(key)
        texts = [value] if isinstance(value, str) else value
        if texts is None:
            return None
        if isinstance(texts, list) and texts and all(isinstance(each, str) for each in texts):
            return texts
        self.refuse_value(key, "is not a list of texts; write them in quotes, within brackets")
        return None

    def duration(self, key: str, *, may_be_off: bool = False) -> timedelta | None:
        """A span of time; None when absent, and for "off" where that is allowed."""
        value = self.values.get(key)
        if value is None or (may_be_off and value == OFF):
            return None
        or_off = f', or "{OFF}"' if may_be_off else ""
        if not isinstance(value, str):
            remedy = f'write a number and a unit in quotes, such as "30d"{or_off}'
            self.refuse_value(key, f"is not a text with a unit; {remedy}")
            return None
        try:
            return parse_duration(value)
        except ConfigError as error:
            self.refuse(f"{key} = {str(error).removesuffix('.')}{or_off}")
            return None

    def count_or_off(self, key: str, least: int = 0) -> int | None:
        """A whole number from `least`; None when absent, and for "off"."""
        value = self.values.get(key)
        if value is None or value == OFF:
            return None
        match value:
            case bool():
                pass
            # NaN and infinity fail the comparison, so that int() never meets them.
            case int() | float() if least <= value <= _COUNT_MAX and value == int(value):
                return int(value)
        self.refuse_value(
            key,
            f"is not a whole number from {least} to {_COUNT_MAX}; write one without quotes, such "
            f'as 100, or "{OFF}"',
        )
        return None

    def share_or_off(self, key: str) -> float | None:
        """A part of a whole, over 0 and up to 1; None when absent, and for "off"."""
        value = self.values.get(key)
        if value is None or value == OFF:
            return None
        match value:
            case bool():
                pass
            case int() | float() if 0 < value <= 1:
                return float(value)
        self.refuse_value(
            key,
            "is not a share over 0 and up to 1; write one without quotes, such as 0.25, or "
            f'"{OFF}"',
        )
        return None
