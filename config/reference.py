"""The settings as documents show them: variable, default and meaning, all from the model."""

from datetime import timedelta
from typing import Final

from pydantic import BeforeValidator, SecretStr
from pydantic.fields import FieldInfo

from config.durations import format_duration
from config.settings import SYSTEM_DATA_DIR, Settings, variable
from config.variables import Choice, Span, Whole

_DATA_DIR_IN_WORDS: Final = (
    "$XDG_DATA_HOME/sema-maintenance or ~/.local/share/sema-maintenance; for root, or without a "
    f"home, {SYSTEM_DATA_DIR}"
)


def settings_reference() -> list[tuple[str, str, str]]:
    """Each setting as its variable, its default in words and its meaning, for documentation."""
    return [
        (variable(name), _default_in_words(field), _meaning(field))
        for name, field in Settings.model_fields.items()
    ]


def _default_in_words(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return _DATA_DIR_IN_WORDS
    match field.default:
        case None:
            return "unset"
        case timedelta():
            return format_duration(field.default)
        case SecretStr():
            return field.default.get_secret_value()
        case _:
            return str(field.default)


def _meaning(field: FieldInfo) -> str:
    """The description, and which values are allowed where there are limits."""
    limits = [
        str(part.func)
        for part in field.metadata
        if isinstance(part, BeforeValidator) and isinstance(part.func, Choice | Span | Whole)
    ]
    return " ".join([field.description or "", *(f"Allowed: {limit}." for limit in limits)])
