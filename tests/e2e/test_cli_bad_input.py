"""Bad input of a person's own: one clear line, exit 2, and every table is as it was."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import Servers
from tests.e2e.command_line import SECRET, CommandLine
from tests.e2e.placed import Ledger, refusal_without_effect

REAP = ("reap", "--scope", "s", "--keep", "0")


@pytest.fixture
def ledger(servers: Servers) -> Iterator[Ledger]:
    """Rows that the job would delete if it ran."""
    url, _ = servers.ledger("18", "plain")
    with closing(Ledger(url)) as ledger:
        ledger.finished("a", "b")
        ledger.session("transcript of a")
        yield ledger


@pytest.fixture
def cli(ledger: Ledger) -> CommandLine:
    return CommandLine(ledger.url)


@pytest.fixture
def refused(cli: CommandLine, ledger: Ledger) -> Callable[..., str]:
    """Run a command that must be refused, and see that it changed nothing."""
    return lambda *arguments, **settings: refusal_without_effect(
        cli, ledger, *arguments, **settings
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[defaults\n", "policy.toml: this is not TOML"),
        ("[defaults]\nkeep = 1\nkeep = 2\n", "policy.toml: this is not TOML"),
        (
            "[defaults]\nmax_ages = '1h'\n",
            'policy.toml: [defaults] max_ages = "1h" is not a known key; did you mean "max_age"?',
        ),
        ("[default]\nkeep = 1\n", "default = {…} is not a known key; did you mean"),
        ("[defaults]\nmax_age = '30'\n", 'policy.toml: [defaults] max_age = "30" has no unit'),
        ("[defaults]\nmax_age = 30\n", "policy.toml: [defaults] max_age = 30 is not a text"),
        ("[defaults]\nmax_age = 'nan'\n", 'max_age = "nan" is not a finite length of time'),
        ("[defaults]\nmax_age = '-1d'\n", 'max_age = "-1d" is negative'),
        ("[defaults]\nkeep = -1\n", "keep = -1 is not a whole number"),
        ("[defaults]\nkeep = 1.5\n", "keep = 1.5 is not a whole number"),
        ("[defaults]\nkeep = inf\n", "keep = inf is not a whole number"),
        ("[defaults]\nkeep = true\n", "keep = true is not a whole number"),
        (
            "[[override]]\nmatch = 's'\nkeep = 1\n[[override]]\nmatch = 's'\nkeep = 2\n",
            'override 2 ("s") has the same match as override 1',
        ),
        ("[[override]]\nkeep = 1\n", "has no match"),
    ],
)
@pytest.mark.parametrize("arguments", [(), ("--keep", "0")], ids=["file", "flags too"])
def test_a_policy_that_cannot_be_used(
    refused: Callable[..., str],
    tmp_path: Path,
    text: str,
    problem: str,
    arguments: tuple[str, ...],
) -> None:
    """Also where the flags replace its ages: the release delay is still the file's."""
    file = tmp_path / "policy.toml"
    file.write_text(text)

    assert problem in refused("reap", "--scope", "s", *arguments, MAINT_POLICY_FILE=str(file))


def test_a_policy_file_that_is_not_there(refused: Callable[..., str], tmp_path: Path) -> None:
    named = tmp_path / "nowhere.toml"

    assert f"{named}: there is no such policy file" in refused(*REAP, "--policy", str(named))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--scope", "s", "--max-age", "30"), '"30" has no unit'),
        (("--scope", "s", "--max-age", "-1d"), '"-1d" is negative'),
        (("--scope", "s", "--max-age", "inf"), '"inf" is not a finite length of time'),
        (("--scope", "s", "--max-age", "1month"), '"1month" is not a duration'),
        (("--scope", "s", "--max-age", ""), '"" is empty'),
        (("--scope", "s", "--keep", "-1"), "'-1' is not a whole number from 0"),
        (("--scope", "s", "--keep", "5.5"), "'5.5' is not a whole number from 0"),
        (("--scope", "s", "--keep", "nan"), "'nan' is not a whole number from 0"),
        (("--scope", "s", "--keep", "true"), "'true' is not a whole number from 0"),
        (("--scope", "s", "--keep", "9" * 19), "is not a whole number from 0"),
        (("--scope", "", "--keep", "0"), "a scope cannot be empty"),
        (("--scope", "s\udcff", "--keep", "0"), "that is not UTF-8 text"),
        (("--keep", "0"), "no scope is named; give --scope S, or --all-scopes"),
        (("--keep", "0", "--all-scopes"), "--all-scopes needs --yes where nobody can be asked"),
        (
            ("--keep", "0", "--all-scopes", "--yes", "--scope", "s"),
            "--scope and --all-scopes contradict each other",
        ),
        (
            ("--scope", "s", "--keep", "0", "--override", "florrs"),
            "there is no guard 'florrs'; did you mean floors?",
        ),
        (
            ("--scope", "s", "--keep", "0", "--override", "holds"),
            "'holds' cannot be lifted by anything",
        ),
        (("--scope", "s", "--keap", "0"), "No such option '--keap'. (Did you mean one of: "),
        (("--scope", "s", "--keep", "0", "now"), "Got unexpected extra argument"),
    ],
)
def test_flags_that_cannot_be_used(
    refused: Callable[..., str], arguments: tuple[str, ...], problem: str
) -> None:
    assert problem in refused("reap", *arguments)


@pytest.mark.parametrize(
    ("job", "guard", "has"),
    [
        ("reap", "sightings", "it has fresh-flips, plausible-times, floors, breakers"),
        ("flip-stale-running", "fresh-flips", "it has sightings, outage, plausible-times, floors"),
        ("reconcile-parked", "breakers", "it has sightings, plausible-times, floors"),
        ("release-sessions", "floors", "it has none"),
        ("drain-harvest", "sightings", "it has none"),
        ("audit-memory", "outage", "it has none"),
    ],
)
def test_a_guard_that_the_job_does_not_have_is_not_lifted(
    refused: Callable[..., str], job: str, guard: str, has: str
) -> None:
    """Or it would stand on record as lifted though nothing was."""
    scope = () if job == "audit-memory" else ("--scope", "s")

    problem = refused(job, *scope, "--override", "all", "--override", guard)

    assert f"{job.replace('-', '_')} has no guard '{guard}'; {has}" in problem


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("MAINT_POLICY_FIEL", "x", "MAINT_POLICY_FIEL is not a setting; did you mean"),
        ("MAINT_LOCK_TIMEOUT", "400", 'MAINT_LOCK_TIMEOUT = "400" has no unit'),
        ("MAINT_LEDGER_SCHEMA", "a-b", "MAINT_LEDGER_SCHEMA"),
        ("MAINT_DATABASE_URL", f"postgres://u:{SECRET}@[h", "MAINT_DATABASE_URL cannot be split"),
    ],
)
def test_settings_that_cannot_be_used(
    refused: Callable[..., str], variable: str, value: str, problem: str
) -> None:
    assert problem in refused(*REAP, **{variable: value})
