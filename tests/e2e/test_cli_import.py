"""Import: a line is stored whole, or named with its problem and left out whole."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from config.policy import parse_policy
from config.settings import load_settings
from store.database import Database
from store.errors import StoreError
from store.ledger_io import is_empty, load_lines
from tests.e2e.command_line import CommandLine, agent, lines
from tests.e2e.placed import Ledger
from worker import frame
from worker.context import Process


@pytest.fixture
def ledger(plain_ledger: tuple[str, Database]) -> Iterator[Ledger]:
    with closing(Ledger(plain_ledger[0])) as ledger:
        yield ledger


@pytest.fixture
def cli(ledger: Ledger) -> CommandLine:
    return CommandLine(ledger.url)


BAD = {
    "a member is missing": ({"scope": "s"}, "handle is missing"),
    "a wrong type": (agent(updatedAt="now"), "updatedAt must be a whole number, not a string"),
    "a boolean for a number": (agent(rev=True), "rev must be a whole number, not true or false"),
    "a fraction": (agent(rev=1.0), "rev must be a whole number, not a number"),
    "an unknown status": (
        agent(status="done"),
        "status must be one of running, parked, completed, failed, killed: 'done'",
    ),
    "a null scope": (agent(scope=None), "scope must be a string, not null"),
    "an empty scope": (agent(scope=""), "scope is empty"),
    "NUL": (agent(summary="a\0b"), "summary contains a NUL character, which Postgres cannot store"),
    "NUL deep inside": (
        agent(x={"y": ["\0"]}),
        "x contains a NUL character, which Postgres cannot store",
    ),
    "half a surrogate pair": (b'"name": "\\ud800"', "name contains half of a surrogate pair"),
    "a key beyond the index": (
        agent(handle="h" * 2600),
        "handle and scope are 2601 bytes together; an index holds 2600",
    ),
    "beyond 64 bits": (agent(rev=2**63), "rev is outside 64 bits"),
    "no JSON": (b"{", "the line is not JSON"),
    "no object": ([1], "the line must be a JSON object, not a list"),
    "NaN": (b'"x": NaN', "the line holds NaN, which is no JSON number"),
    "a member twice": (b'"rev": 1', "rev stands twice in one object"),
    "no UTF-8": (b'"name": "\xff"', "the line is not UTF-8: byte "),
    "nested too deeply": (b'"x": ' + b"[" * 100_000, "the line is nested too deeply"),
    "a checkpoint without a token": (
        {"checkpoint": {"scope": "s", "status": "pending"}},
        "token is missing",
    ),
    "a checkpoint of unknown status": (
        {"checkpoint": {"scope": "s", "token": "t", "status": "waiting"}},
        "status must be one of pending, resolved, expired: 'waiting'",
    ),
    "a checkpoint that is none": ({"checkpoint": 5}, "checkpoint must be an object, not a number"),
    "a transcript without a time": (
        {"session": {"scope": "s", "sessionId": "x", "updatedAt": None}},
        "updatedAt must be a whole number, not null",
    ),
}


def raw(bad: object) -> bytes:
    """A line; bytes that do not begin with a brace are members put into a good record."""
    if not isinstance(bad, bytes):
        return lines(bad)
    if bad.startswith(b"{"):
        return bad + b"\n"
    return json.dumps(agent(handle="bad")).encode()[:-1] + b", " + bad + b"}\n"


@pytest.mark.parametrize(("bad", "problem"), BAD.values(), ids=BAD.keys())
def test_a_bad_line_is_named_and_nothing_of_it_is_stored(
    cli: CommandLine, ledger: Ledger, tmp_path: Path, bad: object, problem: str
) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_bytes(lines(agent(handle="before")) + raw(bad) + lines(agent(handle="after")))

    ended = cli.run("import", str(file))

    assert ended.code == 1
    [line] = [line for line in ended.stderr.splitlines() if not line.startswith("database: ")]
    assert line.startswith(f"{file}:2: {problem}")
    assert ended.stdout == "stored 2 agents, 0 checkpoints, 0 transcripts; lines refused: 1\n"
    assert ledger.handles() == ["after", "before"]
    assert ledger.query("select * from checkpoints") == []
    assert ledger.query("select * from agent_sessions") == []


@pytest.mark.parametrize("kind", ["a member is missing", "no JSON", "no UTF-8"])
def test_stopping_at_a_bad_line_stores_what_was_before_it(
    cli: CommandLine, ledger: Ledger, kind: str
) -> None:
    bad, problem = BAD[kind]
    given = lines(agent(handle="before")) + raw(bad) + lines(agent(handle="after"))

    ended = cli.run("import", "-", "--stop-on-error", stdin=given)

    assert ended.code == 1
    assert f"\n-:2: {problem}" in ended.stderr
    assert ledger.handles() == ["before"]


def test_byte_order_mark_blank_lines_and_line_ends_of_other_systems(
    cli: CommandLine, ledger: Ledger
) -> None:
    given = (
        b"\xef\xbb\xbf"
        + lines(agent(handle="a")).replace(b"\n", b"\r\n")
        + b"\r\n  \n\n"
        + lines(agent(handle="b")).rstrip()
        + b"\n\t\n"
        + lines(agent(handle="c")).rstrip()
    )

    stored = cli.json("import", "-", stdin=given)

    assert stored == {
        "file": "-",
        "stored": {"agents": 3, "checkpoints": 0, "transcripts": 0},
        "refused": 0,
        "refused_by_kind": {},
    }


def test_a_refused_line_of_our_own_making_is_an_error(
    plain_ledger: tuple[str, Database], ledger: Ledger
) -> None:
    """What `run --sample` loads: the first line that is refused is an error."""
    _, database = plain_ledger
    assert is_empty(database)

    stored = load_lines(database, [json.dumps(agent(handle="a")), json.dumps(agent(handle="b"))])

    assert stored == {"agent": 2}
    assert not is_empty(database)
    with pytest.raises(StoreError, match="line 2: handle 'b' is in scope 's' already"):
        load_lines(database, [json.dumps(agent(handle="c")), json.dumps(agent(handle="b"))])


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 1300])
def test_every_line_of_a_file_of_any_length_is_stored_once(
    cli: CommandLine, ledger: Ledger, count: int
) -> None:
    given = lines(*(agent(handle=f"a{n:05}") for n in range(count)))

    assert cli.json("import", "-", stdin=given)["stored"]["agents"] == count

    assert ledger.handles() == [f"a{n:05}" for n in range(count)]


def test_rows_that_are_there_are_named_and_left_as_they_are(
    cli: CommandLine, ledger: Ledger
) -> None:
    ledger.agent("a", content={"summary": "mine"})
    ledger.checkpoint("t", content={"mine": True})
    ledger.session("x", updated_at=1)
    before = ledger.tables()
    given = lines(
        agent(handle="a", summary="theirs"),
        {"checkpoint": {"scope": "s", "token": "t", "status": "expired"}},
        {"session": {"scope": "s", "sessionId": "x", "updatedAt": 9}},
    )

    ended = cli.run("import", "-", stdin=given)

    assert ended.code == 1
    assert ended.stderr.splitlines()[1:] == [
        "-:1: handle 'a' is in scope 's' already; left as it is",
        "-:2: token 't' is in scope 's' already; left as it is",
        "-:3: sessionId 'x' is in scope 's' already; left as it is",
    ]
    assert ledger.tables() == before


def test_refused_lines_are_told_ten_times_and_then_counted_by_kind(
    cli: CommandLine, ledger: Ledger
) -> None:
    """With --verbose each of them; a kind is what is wrong, whatever the value."""
    ledger.finished("a")
    bad = lines(*[agent(handle="a")] * 3, *(agent(handle="b", status=f"s{n}") for n in range(9)))

    ended = cli.run("import", "-", stdin=bad)
    verbose = cli.run("import", "-", "--verbose", stdin=bad)
    document = json.loads(cli.run("import", "-", "--json", stdin=bad).stdout)

    told = [line for line in ended.stderr.splitlines() if line.startswith("-:") and line[2] != " "]
    status = "status must be one of running, parked, completed, failed, killed"
    assert [line.partition(": ")[0] for line in told] == [f"-:{n}" for n in range(1, 11)]
    assert ended.stderr.splitlines()[11:] == [
        "-: 12 lines refused in all; --verbose tells of each:",
        f"  9: {status}",
        "  3: there already",
    ]
    assert len(verbose.stderr.splitlines()) == 13
    assert document["refused_by_kind"] == {status: 9, "there already": 3}


def test_of_two_lines_for_one_row_the_first_is_stored(cli: CommandLine, ledger: Ledger) -> None:
    ended = cli.run("import", "-", stdin=lines(agent(name="one"), agent(name="two")))

    assert ended.code == 1
    assert "-:2: handle 'a1' is in scope 's' already" in ended.stderr
    assert ledger.row("a1")["name"] == "one"


def test_stopping_at_a_row_that_is_there(cli: CommandLine, ledger: Ledger) -> None:
    """Found only in the database, in the midst of a batch: nothing after it is stored."""
    ledger.agent("a0700")
    given = lines(*(agent(handle=f"a{n:04}") for n in range(1000)), {"no": "agent"})

    ended = cli.run("import", "-", "--stop-on-error", stdin=given)

    assert ended.code == 1
    assert ended.stderr.splitlines()[1:] == [
        "-:701: handle 'a0700' is in scope 's' already; left as it is"
    ]
    assert ended.stdout.startswith("stored 700 agents")
    assert ledger.handles() == [f"a{n:04}" for n in range(701)]


@pytest.mark.parametrize("stop", [False, True], ids=["going on", "stopping"])
def test_a_row_that_only_postgres_refuses_is_found_in_its_batch(
    cli: CommandLine, ledger: Ledger, stop: bool
) -> None:
    """A ledger with a rule of its own: the other lines of the batch are stored all the same."""
    given = lines(
        *(agent(handle=f"a{n:03}", owner="nobody" if n == 123 else "session") for n in range(300))
    )
    with ledger.altered(
        "alter table public.background_agents add constraint theirs check (owner <> 'nobody')",
        "alter table public.background_agents drop constraint theirs",
    ):
        arguments = ("--stop-on-error",) if stop else ()
        ended = cli.run("import", "-", *arguments, stdin=given)

    assert ended.code == 1
    [line] = ended.stderr.splitlines()[1:]
    assert line.startswith("-:124: Postgres refused a row: ")
    assert '"theirs"' in line
    kept = range(123) if stop else [n for n in range(300) if n != 123]
    assert ledger.handles() == [f"a{n:03}" for n in kept]


def test_an_import_that_is_cut_short_says_how_far_it_came(cli: CommandLine, ledger: Ledger) -> None:
    """The second batch waits for a table that somebody holds, and gives up."""
    ledger.do("create table if not exists public.held (n int)")
    given = lines(*(agent(handle=f"a{n:04}", seq=n) for n in range(700)))
    with (
        ledger.altered(
            "create function public.wait() returns trigger language plpgsql as $$ begin"
            " if new.seq = 600 then lock table public.held; end if; return new; end $$;"
            " create trigger wait before insert on public.background_agents"
            " for each row execute function public.wait()",
            "drop trigger wait on public.background_agents; drop function public.wait();"
            " drop table public.held",
        ),
        closing(Ledger(ledger.url)) as holder,
    ):
        holder.do("begin")
        holder.do("lock table public.held")
        ended = cli.run("import", "-", stdin=given)
        holder.do("rollback")

    assert ended.code == 1
    assert "-: of the first 500 lines 500 agents, 0 checkpoints, 0 transcripts" in ended.stderr
    assert ledger.count("true") == 500


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("nowhere.jsonl", "No such file or directory"),
        (".", "Is a directory"),
    ],
)
def test_a_file_that_cannot_be_read_is_wrong_usage(
    cli: CommandLine, file: str, problem: str
) -> None:
    assert problem in cli.refusal("import", file)


def test_what_settled_long_ago_is_found_by_the_next_tick(cli: CommandLine, ledger: Ledger) -> None:
    """Without waiting for the hourly look at all scopes."""
    policy = parse_policy('[defaults]\nmax_age = "1h"\n', "policy.toml")
    with closing(Process(load_settings({"MAINT_DATABASE_URL": ledger.url}), policy)) as process:
        assert not [*frame.tick(process, "reap")]
        ledger.finished("a")
        exported = cli.run("export").stdout
        ledger.do("delete from public.background_agents; delete from maintenance.schedule")

        cli.run("import", "-", stdin=exported)

        assert [*frame.tick(process, "reap")]
