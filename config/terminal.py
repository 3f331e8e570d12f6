"""What the environment says of the terminal that a command writes to."""

import os


def is_dumb() -> bool:
    """Whether it can do nothing but print one line after another."""
    return os.environ.get("TERM", "") == "dumb"


def wants_colours() -> bool:
    """Whether the person at it wants colours; NO_COLOR says that they do not (no-color.org)."""
    return not is_dumb() and not os.environ.get("NO_COLOR")
