"""Too much silence at once, as pure decisions over counts."""

import pytest

from store.standstill import MASS, NOBODY, SILENCE, Standing


@pytest.mark.parametrize(
    ("silent", "running", "held"),
    [(9, 9, False), (10, 10, True), (10, 19, True), (10, 20, False), (10, 21, False)],
)
def test_mass_is_more_than_half_and_at_least_ten(silent: int, running: int, held: bool) -> None:
    found = Standing(running, renewed=1, silent=silent).reasons()

    assert (MASS in found) is held
    if held:
        assert found[MASS] == f"{silent} of {running} running rows are stale at once"


@pytest.mark.parametrize(
    ("running", "renewed", "held"), [(1, 0, True), (9, 1, False), (0, 0, False)]
)
def test_silence_is_when_nobody_renews_what_there_is(
    running: int, renewed: int, held: bool
) -> None:
    assert (SILENCE in Standing(running, renewed, silent=0).reasons()) is held


def test_nobody_is_no_reason() -> None:
    assert NOBODY.reasons() == {}
