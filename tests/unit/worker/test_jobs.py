"""Every list of jobs names the same ones."""

from config.policy import SCHEDULED_JOBS
from worker.cli import options
from worker.jobs import JOBS
from worker.schedule import SCHEDULE


def test_every_job_is_known_to_the_command_line() -> None:
    assert {*options.JOBS} == {*JOBS}


def test_every_job_but_the_one_of_the_start_is_scheduled() -> None:
    assert {*SCHEDULED_JOBS} == {entry.job for entry in SCHEDULE} == {*JOBS} - {"audit_memory"}
