"""A flip that was a mistake: the writer that corrects it finds its row and its transcript."""

from dataclasses import replace

from store.agents import PostgresAgentStore
from store.guards import UNGUARDED
from tests.race.jobs import Jobs
from tests.race.rows import LATELY, Rows

FRESH = replace(UNGUARDED, fresh_flips=True)


def test_writer_that_flips_back_its_row_keeps_row_and_transcript(
    rows: Rows, jobs: Jobs, agents: PostgresAgentStore
) -> None:
    """Flipped by mistake, it is terminal and older than any policy allows, and yet stays."""
    rows.running("a", session_id="talk")
    rows.session("talk")
    own = agents.get("a", "s")
    assert own is not None
    assert jobs.flip() == {"flip_stale_running/flipped": 1}

    assert jobs.reap(keep=0, guards=FRESH) == {"reap/skipped/fresh_flip": 1}

    flipped = agents.get("a", "s")
    assert flipped is not None
    own.updated_at = LATELY
    assert agents.update("a", "s", own, flipped.rev)
    assert jobs.reap(max_age_ms=0, keep=0, guards=FRESH) == {}
    assert jobs.release() == {}
    assert rows.brief("a") == ("running", 3)
    assert "error" not in rows.row("a")["content"]
    assert (rows.transcripts(), rows.queued()) == (["talk"], [])
