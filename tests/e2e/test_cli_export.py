"""Export and back: what is in a ledger, or in a file, is there again afterwards, exactly."""

import json
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.database import Database
from store.ledger_io import export_lines
from tests.e2e.command_line import AT_ONCE, CHECKOUT, UNSEEN, CommandLine, lines
from tests.e2e.placed import Ledger

SAMPLE = CHECKOUT / "examples" / "ledger.jsonl"
EVERYTHING = ("--with-checkpoints", "--with-sessions")


@pytest.fixture
def ledger(plain_ledger: tuple[str, Database]) -> Iterator[Ledger]:
    with closing(Ledger(plain_ledger[0])) as ledger:
        yield ledger


@pytest.fixture
def cli(ledger: Ledger) -> CommandLine:
    return CommandLine(ledger.url)


def exported(cli: CommandLine, *arguments: str) -> list[Any]:
    ended = cli.run("export", *arguments)
    assert ended.code == 0
    return [json.loads(line, parse_float=Decimal) for line in ended.stdout.split("\n")[:-1]]


def test_the_sample_comes_out_as_it_went_in(cli: CommandLine, ledger: Ledger) -> None:
    """Unknown members, nulls, empty texts and absent epochs among them."""
    stored = cli.json("import", str(SAMPLE))
    whole = SAMPLE.read_bytes().splitlines()

    assert stored["stored"] == {"agents": 400, "checkpoints": 77, "transcripts": 336}
    assert stored["refused"] == 0
    written = exported(cli, *EVERYTHING)
    assert sorted(map(canonical, written)) == sorted(
        canonical(json.loads(line, parse_float=Decimal)) for line in whole
    )


def canonical(value: Any) -> str:
    """One text for equal JSON values; 1 and 1.0 stay apart."""
    return json.dumps(value, sort_keys=True, default=lambda number: f"decimal {number}")


ODD_CONTENT = (
    r'{"pi": 3.14159265358979323846264338, "big": 1e400, "small": 1e-400, "one": 1.0,'
    r' "nested": {"a": [null, "", {}, []]}, "error": null, "summary": "", "sessionId": null,'
    r' "\u6771 \" \\": "\u0001 \ud83d\ude00"}'
)


def empty(ledger: Ledger) -> None:
    for table in ("background_agents", "checkpoints", "agent_sessions"):
        ledger.do(f"delete from public.{table}")


def test_an_export_makes_the_same_ledger_again(cli: CommandLine, ledger: Ledger) -> None:
    """Also what only a job leaves behind, and numbers that no float holds."""
    cli.json("import", str(SAMPLE))
    cli.json("flip-stale-running", "--all-scopes", "--yes", "--stale-after", "15m", *AT_ONCE)
    cli.json("reconcile-parked", "--all-scopes", "--yes", "--stale-claim-after", "15m", *UNSEEN)
    ledger.agent("odd", updated_at=-5, spawned_at=2**63 - 1, rev=-(2**63))
    ledger.query(
        "update public.background_agents set content = %s::text::jsonb where handle = 'odd'"
        " returning handle",
        ODD_CONTENT,
    )
    before = ledger.ledger()
    ended = cli.run("export", *EVERYTHING)
    empty(ledger)

    again = cli.run("import", "-", stdin=ended.stdout)

    assert (again.code, again.problems) == (0, [])
    assert ledger.ledger() == before


words = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=8
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
bigints = st.integers(-(2**63), 2**63 - 1)
records = st.fixed_dictionaries(
    {
        "scope": words,
        "handle": words,
        "owner": words,
        "writerId": words,
        "sessionScoped": st.booleans(),
        "spawnedAt": bigints,
        "updatedAt": bigints,
        "rev": bigints,
        "status": st.sampled_from(("running", "parked", "completed", "failed", "killed")),
    },
    optional={
        "sessionId": st.none() | words,
        "name": st.none() | st.just("") | words,
        "writerEpoch": st.none() | bigints,
        "settledAt": st.none() | bigints,
        "parkedCheckpointToken": st.none() | words,
        "summary": st.none() | st.just("") | words,
        "x-unknown": json_values,
    },
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(record=records)
def test_any_record_comes_out_as_it_went_in(
    cli: CommandLine, ledger: Ledger, record: dict[str, Any]
) -> None:
    empty(ledger)

    ended = cli.run("import", "-", stdin=json.dumps(record).encode())

    assert (ended.code, ended.problems) == (0, [])
    [written] = exported(cli)
    assert written == json.loads(json.dumps(record), parse_float=Decimal)
    # A member that is absent stays apart from one that is null.
    assert written.keys() == record.keys()


def test_checkpoints_and_transcripts_keep_what_they_hold(cli: CommandLine, ledger: Ledger) -> None:
    given = [
        {"checkpoint": {"scope": "s", "token": "", "status": "pending"}},
        {
            "checkpoint": {
                "scope": "s",
                "token": "t",
                "status": "resolved",
                "expiresAt": None,
                "updatedAt": 5,
                "answer": None,
                "more": {"a": []},
            }
        },
        {"session": {"scope": "s", "sessionId": "x", "updatedAt": 7, "turns": 1.50}},
    ]

    cli.json("import", "-", stdin=lines(*given))

    assert exported(cli, *EVERYTHING) == given
    assert exported(cli) == []
    assert ledger.query("select expires_at, updated_at from checkpoints order by token") == [
        {"expires_at": None, "updated_at": None},
        {"expires_at": None, "updated_at": 5},
    ]


def test_the_scopes_that_are_exported(cli: CommandLine, ledger: Ledger) -> None:
    for scope in ("a", "b", "c"):
        ledger.agent("one", scope=scope)
        ledger.checkpoint("t", scope=scope)

    written = exported(cli, "--scope", "c", "--scope", "a", "--with-checkpoints")

    assert [each.get("checkpoint", each)["scope"] for each in written] == ["a", "c", "a", "c"]


def test_an_export_is_of_one_instant(cli: CommandLine, ledger: Ledger, tmp_path: Path) -> None:
    """What comes to the ledger while the rows are read is not half in it."""
    ledger.fill("s", 1200, {})
    read: list[str] = []
    with closing(Database(ledger.url)) as database:
        for line in export_lines(database, None, ["agent", "checkpoint"]):
            if not read:
                ledger.do("delete from public.background_agents where handle > 'a000600'")
                ledger.checkpoint("late")
            read.append(line)

    assert len(read) == 1200
    assert len(exported(cli, "--with-checkpoints")) == 601


def test_a_file_appears_only_once_it_is_whole(
    cli: CommandLine, ledger: Ledger, tmp_path: Path
) -> None:
    ledger.finished("a", "b")
    file = tmp_path / "out.jsonl"

    ended = cli.run("export", "-o", str(file))

    assert (ended.code, ended.stdout) == (0, "")
    assert "2 lines written" in ended.stderr
    assert len(file.read_bytes().splitlines()) == 2
    assert [each.name for each in tmp_path.iterdir()] == ["out.jsonl"]


def test_a_failing_export_leaves_the_file_that_was_there(
    cli: CommandLine, ledger: Ledger, tmp_path: Path
) -> None:
    """The table goes away between the look at it and the reading of it: a time-out says so."""
    ledger.finished("a")
    file = tmp_path / "out.jsonl"
    file.write_text("yesterday's\n")
    with closing(Ledger(ledger.url)) as holder:
        holder.do("begin")
        holder.do("lock table public.background_agents in access exclusive mode")
        ended = cli.run("export", "-o", str(file))
        holder.do("rollback")

    assert ended.code == 1
    [problem] = ended.problems
    assert "stayed locked" in problem
    assert file.read_text() == "yesterday's\n"
    assert [each.name for each in tmp_path.iterdir()] == ["out.jsonl"]


@pytest.mark.parametrize(
    "place", ["missing folder/out.jsonl", "/proc/out.jsonl"], ids=["no folder", "not writable"]
)
def test_a_file_that_cannot_be_written_is_named(
    cli: CommandLine, tmp_path: Path, place: str
) -> None:
    ended = cli.run("export", "-o", str(tmp_path / place))

    assert ended.code == 1
    [problem] = ended.problems
    assert "out.jsonl" in problem


def test_a_device_is_written_to_and_not_replaced(cli: CommandLine, ledger: Ledger) -> None:
    ledger.finished("a")

    assert cli.run("export", "-o", "/dev/null").code == 0

    assert Path("/dev/null").is_char_device()
