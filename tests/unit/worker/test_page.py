"""The page as a document: what it says in each state, and that nothing can be put into it."""

import base64
import hashlib
import re
from dataclasses import replace

from store.batches import Backlog
from store.figures import Stopped
from tests.unit.worker.standings import (
    NEVER,
    PAST,
    PRESENT,
    WELL,
    away,
    now,
    run,
    standing,
    with_past,
    with_present,
)
from tests.unit.worker.test_markup import Read
from worker.paced import Reading
from worker.page import CONTENT_SECURITY_POLICY, STYLE, render
from worker.standing import Standing

SCRIPT = "<script>alert(1)</script>"


def text(found: Standing) -> str:
    """What is to be read, without the style."""
    return " ".join(Read(render(found).replace(STYLE, "")).text.split())


def title(found: Standing) -> str:
    said = re.search(r"<title>(.*?)</title>", render(found))
    assert said is not None
    return said[1]


def test_state_is_in_the_title_and_at_the_top() -> None:
    assert title(standing()) == "All is well - Sema maintenance"
    assert title(with_present(holds=1)) == "All is well - Sema maintenance"
    assert title(with_present(failing={"reap": 1})) == "1 thing needs attention - Sema maintenance"
    both = with_present(failing={"reap": 1}, releases={"dead": 1})
    assert title(both) == "2 things need attention - Sema maintenance"
    assert title(away()) == "The database cannot be used - Sema maintenance"
    unread = replace(WELL, past=Reading(None, None, late=True))
    assert title(standing(unread)) == "Figures are being read - Sema maintenance"


def test_it_has_landmarks_headings_and_a_language() -> None:
    begun = Read(render(with_present(holds=1))).begun
    tags = [tag for tag, _ in begun]

    assert ("html", {"lang": "en"}) in begun
    assert [t for t in tags if t in {"header", "main", "footer"}] == ["header", "main", "footer"]
    assert [t for t in tags if re.fullmatch("h[1-6]", t)] == ["h1", "h2", "h3", "h2", "h2"]
    assert tags.count("table") == tags.count("caption") == 4
    assert "refresh" not in render(standing())


def test_nothing_is_fetched_and_nothing_runs() -> None:
    begun = Read(render(standing())).begun

    assert not {"script", "img", "link", "iframe", "form", "object"} & {tag for tag, _ in begun}
    assert {a["href"] for _, a in begun if "href" in a} == {
        "./",
        "./metrics",
        "./healthz",
        "./readyz",
    }
    assert not [a for _, a in begun if "src" in a or "style" in a]
    assert "url(" not in STYLE
    assert "@import" not in STYLE


def test_policy_lets_through_this_style_and_nothing_else() -> None:
    written = re.search(r"<style>(.*?)</style>", render(standing()), re.DOTALL)
    assert written is not None
    digest = base64.b64encode(hashlib.sha256(written[1].encode()).digest()).decode()

    assert f"style-src 'sha256-{digest}'" in CONTENT_SECURITY_POLICY
    assert CONTENT_SECURITY_POLICY.startswith("default-src 'none'; ")
    assert "unsafe" not in CONTENT_SECURITY_POLICY


def test_whatever_the_database_says_is_only_text() -> None:
    """Names of jobs, states, counts and tags that nobody foresaw."""
    hostile = replace(
        WELL,
        past=now(
            replace(
                PAST,
                warnings=(SCRIPT,),
                runs={"reap": [run("reap", SCRIPT, report={f"a/{SCRIPT}": 1})]},
            )
        ),
        present=now(
            replace(
                PRESENT,
                failing={SCRIPT: 1},
                pauses={SCRIPT: Stopped(everywhere=True, scopes=1)},
            )
        ),
    )
    document = render(Standing(SCRIPT, standing().now, hostile, standing().entries))

    assert "<script" not in document
    assert document.count("&lt;script&gt;alert(1)") >= 6
    assert "script" not in {tag for tag, _ in Read(document).begun}


def test_each_job_says_when_what_and_how_much() -> None:
    runs = {
        "reap": [
            run("reap", "partial", report={"max_age": 1204, "skipped/breaker": 2}),
            run("reap", scheduled=False),
        ]
    }
    said = text(with_past(runs=runs))

    assert "every 10m next 23:50:00" in said
    assert "partial" in said
    assert "23:48:19, took 250 ms" in said
    assert "max_age 1,204, skipped/breaker 2" in said
    assert "asked for by hand" in said
    assert "4 rows oldest due for 62 s" in said


def test_what_a_process_does_as_it_starts_is_nobodys_request() -> None:
    said = text(
        with_past(runs={"audit_memory": [run("audit_memory", scheduled=False, at_start=True)]})
    )

    assert "as a process started" in said
    assert "asked for by hand" not in said


def test_what_is_waiting_says_how_old_that_is() -> None:
    read = replace(WELL, overdue={"reap": Reading(Backlog(4, 0), None, age_s=12.0)})

    assert "4 rows read 12 s ago" in text(standing(read))
    assert " ago" not in text(standing())


def test_counts_are_shown_and_what_is_not_known_is_not_0() -> None:
    said = text(standing())
    assert "running3" in said
    assert "completed9" in said
    assert "pending5" in said
    assert "holds0" in said

    unknown = text(standing(NEVER))
    for name in ("running", "completed", "pending", "dead", "holds", "jobs paused"):
        assert f"{name}not known" in unknown
    assert "none yet" not in unknown
    assert "It has given nothing since this process began to ask." in unknown


def test_what_was_read_before_the_database_went_says_when() -> None:
    old = Reading(WELL.present.value, None, age_s=95.0)
    said = text(away(replace(WELL, present=old, past=replace(WELL.past, age_s=95.0))))

    assert "It last answered at" in said
    assert said.count("As last read at 23:46:49, 95 s ago.") == 4
    assert "running3" in said
    assert "As last read" not in text(standing())


def test_figures_that_took_minutes_say_how_old_they_are() -> None:
    read = replace(
        WELL,
        terminal=Reading({"completed": 9, "failed": 0, "killed": 0}, None, age_s=240.0),
        overdue={"reap": Reading(Backlog(0, 0), None, age_s=240.0)},
    )
    said = text(standing(read))

    assert "completed9 read 4 min ago" in said
    assert "running3parked" in said
    assert "nothing read 4 min ago" in said


def test_document_is_small_whatever_is_wrong() -> None:
    """It must come at once over a bad line at three in the morning."""
    runs = {job.job: [run(job.job, report={"x" * 30: 1})] * 5 for job in standing().jobs()}

    assert len(render(with_past(runs=runs)).encode()) < 60_000
