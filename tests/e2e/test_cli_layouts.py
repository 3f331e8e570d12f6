"""The command line on every layout of a ledger: plain, partitioned, behind a view."""

import json

import pytest

from store.database import Database
from tests.e2e.command_line import AT_ONCE, CHECKOUT, UNSEEN, CommandLine

SAMPLE = CHECKOUT / "examples" / "ledger.jsonl"
OVER_ALL = ("--all-scopes", "--yes")


@pytest.fixture
def cli(ledger: tuple[str, Database]) -> CommandLine:
    url, database = ledger
    return CommandLine(url, MAINT_LEDGER_SCHEMA=database.statements.ledger_schema)


def lines_of(text: str) -> list[str]:
    return sorted(json.dumps(json.loads(line), sort_keys=True) for line in text.split("\n") if line)


def test_a_day_of_an_operator(cli: CommandLine) -> None:
    """Load, look, dry-run, run, release, and write out what is left."""
    given = SAMPLE.read_text()
    assert cli.json("import", str(SAMPLE))["refused"] == 0
    written = cli.run("export", "--with-checkpoints", "--with-sessions")
    assert lines_of(written.stdout) == lines_of(given)

    jobs = {
        "reap": ("--max-age", "1h", "--keep", "5"),
        "flip-stale-running": ("--stale-after", "15m", *AT_ONCE),
        "reconcile-parked": ("--stale-claim-after", "15m", *UNSEEN),
        "release-sessions": (),
    }
    for job, flags in jobs.items():
        planned = cli.json(job, "--all-scopes", *flags, "--dry-run")
        run = cli.json(job, *OVER_ALL, *flags)
        done = {name: n for name, n in run["report"].items() if not name.startswith("skipped")}
        assert run["state"] == "succeeded"
        assert sum(done.values()) == planned["rows"]
        assert (planned["rows"] > 0) == (job != "release-sessions")

    statuses = [each["agents"] for each in cli.json("scopes", "--counts")]
    assert len(statuses) == 8
    assert sum(each["running"] for each in statuses) == 0
    assert cli.json("status")["agents"]["running"] == 0
    assert len(cli.json("history")) == 4
    parked = cli.json("agents", "list", "--scope", "tenant/acme", "--status", "parked")
    assert cli.json("agents", "show", "tenant/acme", parked[0]["handle"])["status"] == "parked"


def test_a_view_with_another_shape_is_refused(cli: CommandLine) -> None:
    """Where the tables are kept under other names, our names are not found."""
    problem = cli.refusal("scopes", MAINT_LEDGER_SCHEMA="kept")

    assert "background_agents" in problem
    assert "schema kept" in problem
