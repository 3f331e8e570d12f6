"""`doctor` as an operator runs it: exit codes, both forms, and what is away or wrong at once."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from store.diagnosis import NEEDING_THE_DATABASE
from tests.conftest import Servers
from tests.e2e.command_line import CHECKOUT, SECRET, CommandLine
from tests.ledgers import VERSIONS, fresh_database
from tests.ports import free_port
from tests.store.diagnosed import Diagnosed

POLICY = """
[defaults]
max_age = "30d"
stale_running_max_age = "15m"
"""
LATE = "update maintenance.schedule set last_slot = 0"
SMALL = "alter table public.background_agents reset (fillfactor)"


@pytest.fixture(params=VERSIONS, ids=lambda v: f"pg{v}")
def sound(servers: Servers, request: pytest.FixtureRequest) -> Iterator[Diagnosed]:
    with fresh_database(servers.url(request.param), f"sema_doctor_cli_{os.getpid()}") as url:
        yield Diagnosed(url, "plain")


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY, encoding="utf-8")
    return file


@pytest.fixture
def cli(sound: Diagnosed, policy: Path) -> CommandLine:
    return CommandLine(sound.url, MAINT_POLICY_FILE=str(policy))


def states(cli: CommandLine, *arguments: str, **settings: str) -> tuple[int, dict[str, set[str]]]:
    """The exit code, and every state of each check."""
    ended = cli.run("doctor", "--json", *arguments, **settings)
    by_check: dict[str, set[str]] = {}
    document = json.loads(ended.stdout)
    for check in document["checks"]:
        by_check.setdefault(check["check"], set()).add(check["state"])
    counted = [check["state"] for check in document["checks"]]
    assert document["counts"] == {state: counted.count(state) for state in document["counts"]}
    assert ended.problems == []
    return ended.code, by_check


def test_nothing_is_wrong(cli: CommandLine) -> None:
    """Every line is ok, also for a process of its own; strictness changes nothing."""
    ended = cli.process("doctor", "--strict")

    assert ended.code == 0, ended
    *lines, summary = ended.stdout.splitlines()
    assert {line.split()[0] for line in lines} == {"ok"}
    assert summary == f"{len(lines)} ok (for: worker)"
    assert ended.stderr.startswith("database: ")
    code, found = states(cli)
    assert code == 0
    assert {*NEEDING_THE_DATABASE} < {*found}
    assert {state for each in found.values() for state in each} == {"ok"}


def test_the_database_is_named_before_the_list(cli: CommandLine) -> None:
    """On one terminal with it."""
    environment = cli.environment()
    said = subprocess.run(
        [sys.executable, "-m", "worker", "doctor", "--for", "operator"],
        cwd=CHECKOUT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=True,
        timeout=60,
    ).stdout.decode()

    assert said.startswith("database: ")
    assert said.endswith(" ok (for: operator)\n")
    assert cli.json("doctor", "--for", "exporter")["for"] == "exporter"


def test_a_warning_fails_only_where_that_is_asked_for(cli: CommandLine, sound: Diagnosed) -> None:
    sound.do(SMALL)

    ended = cli.run("doctor")

    assert ended.code == 0
    lines = ended.stdout.splitlines()
    [place] = [n for n, line in enumerate(lines) if line.startswith("warning")]
    assert lines[place].startswith("warning   fillfactor: public.background_agents has fillfactor")
    remedy = 'alter table "public"."background_agents" set (fillfactor = 90);'
    assert lines[place + 1].startswith(f"          → {remedy}")
    assert lines[-1].startswith("1 warning, ")
    assert cli.run("doctor", "--strict").code == 1


def test_an_error_fails(cli: CommandLine, sound: Diagnosed) -> None:
    sound.do(LATE)

    code, found = states(cli)

    assert (code, found["ticks"]) == (1, {"error"})


def test_database_and_broker_are_down(cli: CommandLine) -> None:
    """Two errors; what needs them is named; the rest is looked at; no secret is told."""
    urls = {
        "MAINT_DATABASE_URL": f"postgresql://someone:{SECRET}@127.0.0.1:{free_port()}/sema",
        "MAINT_BROKER_URL": f"amqp://someone:{SECRET}@127.0.0.1:{free_port()}//;"
        f"redis://:{SECRET}@127.0.0.1:{free_port()}/0",
    }

    ended = cli.process("doctor", **urls)

    assert ended.code == 1
    assert ended.problems == []
    lines = ended.stdout.splitlines()
    errors = [line for line in lines if line.startswith("error")]
    assert [line.split()[1] for line in errors] == ["broker:", "broker:", "database:"]
    assert all("refused" in line for line in errors)
    assert "the connection is refused, so nothing listens there" in errors[0]
    assert "ConnectionRefusedError" not in ended.stdout
    assert f"not made  {', '.join(NEEDING_THE_DATABASE)}: needs the database" in lines
    assert "not made  queues: needs the broker" in lines
    assert [line for line in lines if line.startswith("ok        policy: ")]
    assert SECRET not in ended.stdout + ended.stderr
    code, found = states(cli, **urls)
    assert code == 1
    assert {check for check, its in found.items() if its == {"not made"}} == {
        *NEEDING_THE_DATABASE,
        "queues",
    }


def test_a_database_that_lets_nobody_in(cli: CommandLine, sound: Diagnosed) -> None:
    url = sound.url.replace("dbname=", "password=" + SECRET + " user=nobody_at_all dbname=")

    ended = cli.run("doctor", MAINT_DATABASE_URL=url)

    assert ended.code == 1
    assert "error     database: the database does not answer: " in ended.stdout
    assert SECRET not in ended.stdout + ended.stderr


def test_without_any_database(tmp_path: Path) -> None:
    """There is no embedded one either, and none is made."""
    code, found = states(CommandLine(None, MAINT_DATA_DIR=str(tmp_path)))

    assert (code, found["database"]) == (1, {"error"})
    assert {state for name in NEEDING_THE_DATABASE for state in found[name]} == {"not made"}
    assert [*tmp_path.iterdir()] == []


def test_a_policy_that_lets_nothing_be_done(cli: CommandLine, policy: Path) -> None:
    policy.write_text('[defaults]\nstale_claim_max_age = "15m"\n', encoding="utf-8")

    ended = cli.run("doctor")

    assert ended.code == 0
    assert "warning   policy: policy.toml: nothing is ever deleted" in ended.stdout
    assert "warning   policy: policy.toml: no silent row is ever marked failed" in ended.stdout
    named = cli.run("doctor", "--policy", str(policy), MAINT_POLICY_FILE="")
    assert named.stdout.splitlines()[:2] == ended.stdout.splitlines()[:2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[defaults]\nmax_aeg = "30d"\n', "max_age"),
        ("nonsense", "policy.toml"),
        (None, "there is no such policy file"),
    ],
)
def test_a_policy_that_cannot_be_used(
    cli: CommandLine, policy: Path, text: str | None, said: str
) -> None:
    """It is an error among the others, which are looked at all the same."""
    if text is None:
        policy.unlink()
    else:
        policy.write_text(text, encoding="utf-8")

    ended = cli.run("doctor")

    assert (ended.code, ended.problems) == (1, [])
    [line] = [line for line in ended.stdout.splitlines() if line.startswith("error")]
    assert line.startswith("error     policy: ")
    assert said in line


def test_a_token_file(cli: CommandLine, tmp_path: Path) -> None:
    """Nothing is sent: the address leads nowhere."""
    token = tmp_path / "token"
    http = {
        "MAINT_RELEASE_BACKEND": "http",
        "MAINT_RELEASE_URL": f"http://127.0.0.1:{free_port()}/{{scope}}/{{session_id}}",
        "MAINT_RELEASE_TOKEN_FILE": str(token),
    }
    assert states(cli, **http)[1]["transcripts"] == {"error"}
    token.write_text(f"{SECRET} {SECRET}")
    ended = cli.run("doctor", **http)
    assert (
        f"error     transcripts: no transcript can be released: the token file {token} cannot"
        in (ended.stdout)
    )
    assert SECRET not in ended.stdout + ended.stderr
    token.write_text(SECRET)

    code, found = states(cli, **http)

    assert (code, found["transcripts"]) == (0, {"ok"})
    assert states(cli, MAINT_RELEASE_BACKEND="none")[1]["transcripts"] == {"ok"}


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (("--nonsense",), {}),
        (("more",), {}),
        (("--for", "server"), {}),
        ((), {"MAINT_STATEMENT_TIMEOUT": "5"}),
        ((), {"MAINT_BROKER_URL": "redis://h/x"}),
        ((), {"MAINT_BROKER_URL": "amqp://h?ssl=1"}),
        ((), {"MAINT_RELEASE_BACKEND": "http", "MAINT_RELEASE_URL": "nowhere"}),
    ],
)
def test_wrong_usage(
    cli: CommandLine, arguments: tuple[str, ...], settings: dict[str, str]
) -> None:
    ended = cli.run("doctor", *arguments, **settings)

    assert (ended.code, ended.stdout) == (2, "")
    assert ended.problems


def test_what_others_named_is_shown_without_what_a_terminal_would_act_on(
    cli: CommandLine, sound: Diagnosed
) -> None:
    sound.do("alter table public.background_agents drop constraint background_agents_status_check")
    sound.agents(1, status="E'\\x1b[2Jgone'")
    with psycopg.connect(sound.url) as connection:
        assert connection.execute("select status from background_agents").fetchone() is not None

    ended = cli.run("doctor")

    assert "\x1b" not in ended.stdout
    assert "\\x1b[2Jgone" in ended.stdout
