"""What the policy's guards become for the store."""

from config.guards import DEFAULT_GUARDS
from store.guards import GUARDS_OF, LIFTABLE, Guards, not_lifted
from tasks.context import guards_of
from worker.jobs import JOBS


def test_the_defaults_of_the_policy_are_those_of_the_store() -> None:
    assert guards_of(DEFAULT_GUARDS) == Guards()


def test_every_guard_bears_on_a_job_and_every_job_names_real_ones() -> None:
    named = {name for own in GUARDS_OF.values() for name in own}

    assert named == {*LIFTABLE}
    assert {*GUARDS_OF} <= {*JOBS}
    for job in JOBS:
        assert not_lifted(job, ["all", *GUARDS_OF.get(job, ())]) is None
