"""Why rows are passed over is said in one table, for every reason that is counted."""

import re
from pathlib import Path

import pytest

from store.guards import GUARDS_OF, LIFTABLE
from worker.metrics import METRICS
from worker.passed_over import PASSED_OVER, in_words, lifted_by

README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
[COUNTED] = [m.known for m in METRICS if m.name == "background_agent_skipped_total"]


def test_every_reason_that_is_counted_is_explained_and_no_other() -> None:
    assert {reason for _, reason in COUNTED} == {*PASSED_OVER}


@pytest.mark.parametrize(("job", "reason"), COUNTED)
def test_what_lifts_it_is_a_guard_that_the_job_has(job: str, reason: str) -> None:
    """So that the option which is named is not refused by the job's own command."""
    guard = lifted_by(reason)

    assert guard is None or guard in GUARDS_OF[job]
    assert (f"(--override {guard})" in in_words(job, reason)) is (guard is not None)


def test_the_readme_lifts_each_reason_by_the_same_guard() -> None:
    """In the table that says for each reason where it is seen, when it ends and what lifts it."""
    table = README.partition("| it holds back for |")[2].partition("\n\n")[0]
    said = {
        reason: guard
        for row in table.splitlines()[2:]
        for guard in re.findall(r"`--override ([a-z-]+)`", row)
        for reason in re.findall(r"`([a-z_]+)`", row.split("|")[1])
    }

    assert said == {r: p.guard for r, p in PASSED_OVER.items() if p.guard is not None}
    assert {*said.values()} | {"floors"} == {*LIFTABLE}


def test_a_reason_that_only_another_release_knows_is_named() -> None:
    assert in_words("reap", "moonlight") == "moonlight"
