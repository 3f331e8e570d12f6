"""What each variable may be, what it is without one, and what is said about a mistake."""

import os
import traceback
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from config.addresses import Address
from config.errors import ConfigError, SettingsError
from config.reference import settings_reference
from config.settings import Settings, default_data_dir, load_settings


def problems_of(environ: dict[str, str]) -> tuple[str, ...]:
    """What is said about these variables."""
    with pytest.raises(SettingsError) as refused:
        load_settings(environ)
    return refused.value.problems


def test_without_any_variable_every_setting_has_its_default() -> None:
    """The worker of one machine: embedded database, memory broker, no policy."""
    settings = load_settings({"HOME": "/home/me"})

    assert settings.database_url is None
    assert settings.ledger_schema == "public"
    assert settings.broker_url.get_secret_value() == "memory://"
    assert settings.policy_file is None
    assert settings.http_address == Address("127.0.0.1", 9464)
    assert (settings.log_level, settings.log_format) == ("info", "auto")
    assert (settings.worker_pool, settings.worker_concurrency) == ("threads", 2)
    assert settings.statement_timeout == timedelta(seconds=30)
    assert settings.lock_timeout == timedelta(milliseconds=400)
    assert settings.idle_in_transaction_timeout == timedelta(seconds=60)
    assert settings.connect_timeout == timedelta(seconds=5)
    assert settings.liveness_limit == timedelta(minutes=2)
    assert settings.job_budget == timedelta(minutes=5)
    assert settings.scopes_per_part == 200
    assert (settings.scopes_per_batch, settings.rows_per_batch) == (20, 5000)
    assert settings.release_backend == "postgres"
    assert (settings.release_url, settings.release_token_file) == (None, None)
    assert (settings.release_timeout, settings.release_concurrency) == (timedelta(seconds=10), 4)
    assert settings.release_batch == 200
    assert (settings.release_lease, settings.release_attempts) == (timedelta(minutes=5), 8)
    assert settings.release_backoff == timedelta(seconds=30)
    assert settings.release_backoff_max == timedelta(hours=1)


def test_every_variable_sets_its_field() -> None:
    """One name, one field: none is read under another's."""
    settings = load_settings(
        {
            "MAINT_DATABASE_URL": "host=db password=s3cret",
            "MAINT_LEDGER_SCHEMA": "Agents_2",
            "MAINT_BROKER_URL": "redis://broker/1",
            "MAINT_BROKER_USER": "worker",
            "MAINT_BROKER_PASSWORD": "s3cret",
            "MAINT_DATA_DIR": "/srv/maintenance",
            "MAINT_POLICY_FILE": "/etc/policy.toml",
            "MAINT_HTTP_ADDRESS": "[::]:80",
            "MAINT_LOG_LEVEL": "WARNING",
            "MAINT_LOG_FORMAT": "json",
            "MAINT_WORKER_POOL": "prefork",
            "MAINT_WORKER_CONCURRENCY": "64",
            "MAINT_STATEMENT_TIMEOUT": "1m",
            "MAINT_LOCK_TIMEOUT": "1ms",
            "MAINT_IDLE_IN_TRANSACTION_TIMEOUT": "1d",
            "MAINT_CONNECT_TIMEOUT": "1s",
            "MAINT_LIVENESS_LIMIT": "1m",
            "MAINT_JOB_BUDGET": "1h30m",
            "MAINT_SCOPES_PER_PART": "1",
            "MAINT_SCOPES_PER_BATCH": "2",
            "MAINT_ROWS_PER_BATCH": "3",
            "MAINT_RELEASE_BACKEND": "HTTP",
            "MAINT_RELEASE_URL": "https://h/{scope}/{session_id}",
            "MAINT_RELEASE_TOKEN_FILE": "/run/token",
            "MAINT_RELEASE_TIMEOUT": "100ms",
            "MAINT_RELEASE_CONCURRENCY": "7",
            "MAINT_RELEASE_BATCH": "4",
            "MAINT_RELEASE_LEASE": "1.5h",
            "MAINT_RELEASE_ATTEMPTS": "5",
            "MAINT_RELEASE_BACKOFF": "6s",
            "MAINT_RELEASE_BACKOFF_MAX": "6s",
        }
    )

    assert settings == Settings(
        database_url=SecretStr("host=db password=s3cret"),
        ledger_schema="Agents_2",
        broker_url=SecretStr("redis://broker/1"),
        broker_user="worker",
        broker_password=SecretStr("s3cret"),
        data_dir=Path("/srv/maintenance"),
        policy_file=Path("/etc/policy.toml"),
        http_address=Address("::", 80),
        log_level="warning",
        log_format="json",
        worker_pool="prefork",
        worker_concurrency=64,
        statement_timeout=timedelta(minutes=1),
        lock_timeout=timedelta(milliseconds=1),
        idle_in_transaction_timeout=timedelta(days=1),
        connect_timeout=timedelta(seconds=1),
        liveness_limit=timedelta(minutes=1),
        job_budget=timedelta(minutes=90),
        scopes_per_part=1,
        scopes_per_batch=2,
        rows_per_batch=3,
        release_backend="http",
        release_url="https://h/{scope}/{session_id}",
        release_token_file=Path("/run/token"),
        release_timeout=timedelta(milliseconds=100),
        release_concurrency=7,
        release_batch=4,
        release_lease=timedelta(minutes=90),
        release_attempts=5,
        release_backoff=timedelta(seconds=6),
        release_backoff_max=timedelta(seconds=6),
    )


@pytest.mark.parametrize(
    ("name", "value", "begin", "end"),
    [
        ("LEDGER_SCHEMA", "a-b", '= "a-b" is not a plain name', "no digit first."),
        ("LEDGER_SCHEMA", "2a", '= "2a" is not a plain name', "no digit first."),
        ("LEDGER_SCHEMA", 'a"b', '= "a\\"b" is not a plain name', "no digit first."),
        ("LEDGER_SCHEMA", "ä", '= "ä" is not a plain name', "no digit first."),
        ("LEDGER_SCHEMA", "a" * 64, '= "aaa', "no digit first."),
        ("DATA_DIR", "~no_such_user/x", '= "~no_such_user/x" begins with', "in full."),
        ("HTTP_ADDRESS", ":9464", '= ":9464" is not a host and a port', "every interface."),
        ("HTTP_ADDRESS", "[::1]", '= "[::1]" is not a host and a port', "every interface."),
        ("LOG_LEVEL", "trace", '= "trace" is not one of debug, info, warning, error', "these."),
        ("LOG_FORMAT", "xml", '= "xml" is not one of auto, json, text', "one of these."),
        ("WORKER_POOL", "gevent", '= "gevent" is not one of threads, prefork', "of these."),
        ("WORKER_CONCURRENCY", "0", '= "0" is not a whole number from 1 to 64', "in digits."),
        ("WORKER_CONCURRENCY", "65", '= "65" is not a whole number from 1 to 64', "digits."),
        ("WORKER_CONCURRENCY", "-1", '= "-1" is not a whole number', "in digits."),
        ("WORKER_CONCURRENCY", "2.0", '= "2.0" is not a whole number', "in digits."),
        ("WORKER_CONCURRENCY", "1_0", '= "1_0" is not a whole number', "in digits."),
        ("WORKER_CONCURRENCY", "two", '= "two" is not a whole number', "in digits."),
        ("WORKER_CONCURRENCY", "٣", '= "٣" is not a whole number', "in digits."),
        ("ROWS_PER_BATCH", "9" * 5000, '= "9999', "in digits."),
        ("SCOPES_PER_PART", "0", '= "0" is not a whole number from 1 to 100000', "digits."),
        ("SCOPES_PER_BATCH", "0", '= "0" is not a whole number from 1 to 10000', "digits."),
        ("RELEASE_BATCH", "0", '= "0" is not a whole number from 1 to 10000', "digits."),
        ("RELEASE_ATTEMPTS", "0", '= "0" is not a whole number from 1 to 1000', "digits."),
        ("LIVENESS_LIMIT", "59s", '= "59s" is not a duration from 1m to 1h', "limits."),
        ("JOB_BUDGET", "300", '= "300" has no unit', '"1h30m" or "30d".'),
        ("JOB_BUDGET", "-5m", '= "-5m" is negative', '"1h30m" or "30d".'),
        ("JOB_BUDGET", "inf", '= "inf" is not a finite length of time', '"30d".'),
        ("JOB_BUDGET", "off", '= "off" is not a duration', '"30d".'),
        ("JOB_BUDGET", "999ms", '= "999ms" is not a duration from 1s to 1d', "limits."),
        ("JOB_BUDGET", "25h", '= "25h" is not a duration from 1s to 1d', "limits."),
        ("STATEMENT_TIMEOUT", "0s", '= "0s" is not a duration from 1ms to 1d', "limits."),
        ("LOCK_TIMEOUT", "0.5ms", '= "0.5ms" is not a duration from 1ms to 1d', "limits."),
        ("IDLE_IN_TRANSACTION_TIMEOUT", "0s", '= "0s" is not a duration', "limits."),
        ("CONNECT_TIMEOUT", "0.9s", '= "0.9s" is not a duration from 1s to 1h', "limits."),
        ("RELEASE_LEASE", "0s", '= "0s" is not a duration from 1s to 1d', "limits."),
        ("RELEASE_BACKOFF", "0s", '= "0s" is not a duration from 1ms to 1d', "limits."),
        ("RELEASE_BACKOFF_MAX", "0s", '= "0s" is not a duration', "limits."),
        (
            "RELEASE_BACKOFF",
            "2h",
            "= 2h is longer than MAINT_RELEASE_BACKOFF_MAX = 1h",
            "lengthen the second.",
        ),
        ("RELEASE_BACKEND", "s3", '= "s3" is not one of postgres, http, none', "one of these."),
        ("RELEASE_BACKEND", "http", "= http says nothing of where to", "or choose another."),
        (
            "RELEASE_URL",
            "https://h/{scope}/{session_id}",
            "has no use with MAINT_RELEASE_BACKEND = postgres",
            "set the second to http.",
        ),
        (
            "RELEASE_TOKEN_FILE",
            "/run/token",
            "has no use with MAINT_RELEASE_BACKEND = postgres",
            "set the second to http.",
        ),
        ("RELEASE_TIMEOUT", "99ms", '= "99ms" is not a duration from 0.1s to 1h', "limits."),
        ("RELEASE_CONCURRENCY", "0", '= "0" is not a whole number from 1 to 64', "digits."),
        ("RELEASE_URL", "ftp://h/{scope}/{session_id}", "does not begin with http://", '_id}".'),
        ("DATABASE_URL", "agents", "is neither a Postgres URL nor libpq keywords", 'agents".'),
        ("BROKER_URL", "valkey://h", 'has the scheme "valkey"', '5672//".'),
    ],
)
def test_a_bad_value_is_told_in_one_sentence(name: str, value: str, begin: str, end: str) -> None:
    """The variable, its value and what to write instead; nothing of pydantic's own words."""
    (problem,) = problems_of({f"MAINT_{name}": value})

    assert problem.startswith(f"MAINT_{name} {begin}")
    assert problem.endswith(end)
    assert "\n" not in problem
    assert len(problem) < 300
    assert "pydantic" not in problem


def test_a_lease_has_room_for_the_requests_under_it() -> None:
    """Twice over: who is slow must not lose its claim while it waits for the answer."""
    given = {
        "MAINT_RELEASE_BACKEND": "http",
        "MAINT_RELEASE_URL": "https://h/{scope}/{session_id}",
        "MAINT_RELEASE_TIMEOUT": "10s",
    }

    assert load_settings({**given, "MAINT_RELEASE_LEASE": "20s"}).release_backend == "http"
    (problem,) = problems_of({**given, "MAINT_RELEASE_LEASE": "19s"})
    assert problem == (
        "MAINT_RELEASE_LEASE = 19s is shorter than twice MAINT_RELEASE_TIMEOUT = 10s; lengthen the "
        "first or shorten the second."
    )


def test_all_bad_variables_are_told_at_once() -> None:
    """A deployment is corrected once, not once a restart."""
    problems = problems_of(
        {"MAINT_JOB_BUDGET": "5", "MAINT_LOG_LEVEL": "loud", "MAINT_LOG_LEVL": "info"}
    )

    assert sorted(problem.split()[0] for problem in problems) == [
        "MAINT_JOB_BUDGET",
        "MAINT_LOG_LEVEL",
        "MAINT_LOG_LEVL",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAINT_DATABASE_URL", "postgresql://u:s3cret@h@x/db"),
        ("MAINT_DATABASE_URL", "mysql://u:s3cret@h/db"),
        ("MAINT_DATABASE_URL", "host=h password=a s3cret"),
        ("MAINT_BROKER_URL", "valkey://:s3cret@h"),
        ("MAINT_BROKER_URL", "redis://:s3cret/@h"),
        ("MAINT_RELEASE_URL", "https://u:s3cret@h/{scope}/{session_id}"),
        ("MAINT_RELEASE_URL", "https://h/{scope}/{id}?key=s3cret"),
        # In the wrong variable, or under a name that is none.
        ("MAINT_LEDGER_SCHEMA", "postgresql://u:s3cret@h/db"),
        ("MAINT_HTTP_ADDRESS", "http://u:s3cret@h"),
        ("MAINT_JOB_BUDGET", "host=h password=s3cret"),
        ("MAINT_DATABASE_PASSWORD", "s3cret"),
        ("MAINT_DATABASEURL", "postgresql://u:s3cret@h/db"),
    ],
)
def test_no_password_is_in_the_error_or_anything_it_carries(name: str, value: str) -> None:
    """A log that prints the whole chain of causes shows none either."""
    with pytest.raises(SettingsError) as refused:
        load_settings({name: value})

    assert name in str(refused.value)
    assert "s3cret" not in "".join(traceback.format_exception(refused.value))
    assert "s3cret" not in repr(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None
    assert isinstance(refused.value, ConfigError)


def test_no_password_is_in_the_settings_as_text() -> None:
    settings = load_settings(
        {
            "MAINT_DATABASE_URL": "postgresql://u:s3cret@h/db",
            "MAINT_BROKER_URL": "redis://:s3cret@h",
        }
    )

    assert "s3cret" not in f"{settings!r} {settings} {settings.model_dump()}"
    assert settings.database_url is not None
    assert settings.database_url.get_secret_value() == "postgresql://u:s3cret@h/db"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("MAINT_DATABSE_URL", "MAINT_DATABASE_URL"),
        ("MAINT_DB_URL", "MAINT_DATABASE_URL"),
        ("MAINT_SCHEMA", "MAINT_LEDGER_SCHEMA"),
        ("MAINT_HTTP_PORT", "MAINT_HTTP_ADDRESS"),
        ("MAINT_POLICY", "MAINT_POLICY_FILE"),
        ("MAINT_CONCURRENCY", "MAINT_WORKER_CONCURRENCY"),
        ("MAINT_broker_url", "MAINT_BROKER_URL"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_one_meant(name: str, meant: str) -> None:
    """A setting that silently does not apply is found out when it is too late."""
    assert problems_of({name: "9464"}) == (f"{name} is not a setting; did you mean {meant}?",)


def test_an_unknown_variable_like_no_other_is_refused() -> None:
    assert problems_of({"MAINT_ZZZ": "1"}) == (
        "MAINT_ZZZ is not a setting; correct its name or remove it.",
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAINT_SERVICE_HOST", "10.0.0.1"),
        ("MAINT_SERVICE_PORT", "9464"),
        ("MAINT_SERVICE_PORT_METRICS", "9464"),
        ("MAINT_PORT", "tcp://10.0.0.1:9464"),
        ("MAINT_PORT_9464_TCP", "tcp://10.0.0.1:9464"),
        ("MAINT_PORT_9464_TCP_PROTO", "tcp"),
        ("MAINT_PORT_9464_TCP_PORT", "9464"),
        ("MAINT_PORT_9464_TCP_ADDR", "10.0.0.1"),
        ("MAINT_EXPORTER_SERVICE_HOST", "10.0.0.1"),
        ("MAINT_EXPORTER_SERVICE_PORT_METRICS", "9464"),
        ("MAINT_EXPORTER_PORT", "udp://10.0.0.1:9464"),
        ("MAINT_EXPORTER_PORT_53_UDP_PROTO", "udp"),
    ],
)
def test_what_kubernetes_sets_for_a_service_of_that_name_is_no_mistake(
    name: str, value: str
) -> None:
    """A service called "maint" must not keep every pod of its namespace from starting."""
    assert load_settings({name: value}) == load_settings({})


@pytest.mark.parametrize("value", ["", " ", "\n"])
def test_an_empty_variable_counts_as_unset(value: str) -> None:
    """So do templates set what nobody chose; an empty unknown one is harmless too."""
    names = [name for name, _, _ in settings_reference()]

    assert load_settings({**dict.fromkeys(names, value), "MAINT_ZZZ": value}) == load_settings({})


def test_white_space_around_a_value_is_ignored() -> None:
    """A secret that comes out of a file ends with a line feed."""
    settings = load_settings({"MAINT_DATABASE_URL": "postgresql://h/db\n"})

    assert settings.database_url == SecretStr("postgresql://h/db")


def test_variables_of_others_are_not_looked_at() -> None:
    assert load_settings({"PATH": "/bin", "MAINTAINER": "me", "maint_log_level": "loud"}) == (
        load_settings({})
    )


def test_without_an_argument_the_environment_of_the_process_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in os.environ if name.startswith("MAINT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MAINT_WORKER_CONCURRENCY", "7")

    assert load_settings().worker_concurrency == 7


def test_with_an_argument_the_environment_of_the_process_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MAINT_WORKER_CONCURRENCY", "7")
    monkeypatch.setenv("MAINT_ZZZ", "1")

    assert load_settings({}).worker_concurrency == 2
    assert Settings().worker_concurrency == 2


def test_settings_do_not_change() -> None:
    settings = load_settings({})

    with pytest.raises(ValidationError):
        settings.worker_concurrency = 3

    assert settings.worker_concurrency == 2


@pytest.mark.parametrize(
    ("environ", "is_root", "folder"),
    [
        ({"HOME": "/home/me"}, False, "/home/me/.local/share/sema-maintenance"),
        ({"HOME": "/home/me", "XDG_DATA_HOME": "/data"}, False, "/data/sema-maintenance"),
        (
            {"HOME": "/home/me", "XDG_DATA_HOME": "data"},
            False,
            "/home/me/.local/share/sema-maintenance",
        ),
        (
            {"HOME": "/home/me", "XDG_DATA_HOME": ""},
            False,
            "/home/me/.local/share/sema-maintenance",
        ),
        ({"HOME": "/root", "XDG_DATA_HOME": "/data"}, True, "/var/lib/sema-maintenance"),
        ({}, False, "/var/lib/sema-maintenance"),
    ],
)
def test_the_data_folder_follows_user_and_environment(
    environ: dict[str, str], is_root: bool, folder: str
) -> None:
    """As the XDG specification says for a person, and one place for the system."""
    assert default_data_dir(environ, is_root=is_root) == Path(folder)


def test_the_default_data_folder_is_of_the_given_environment() -> None:
    environ = {"HOME": "/home/me", "XDG_DATA_HOME": "/data"}

    assert load_settings(environ).data_dir == default_data_dir(environ, is_root=os.geteuid() == 0)


def test_paths_are_absolute_afterwards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that changes its folder later still means the same file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")

    settings = load_settings({"MAINT_POLICY_FILE": "policy.toml", "MAINT_DATA_DIR": "~/data"})

    assert settings.policy_file == tmp_path / "policy.toml"
    assert settings.data_dir == Path("/home/me/data")


def test_the_reference_has_a_sentence_for_every_setting() -> None:
    """The configuration table of the documentation is made from it."""
    reference = settings_reference()
    by_name = {name: (default, meaning) for name, default, meaning in reference}

    assert len(by_name) == len(reference) == len(Settings.model_fields)
    assert all(meaning.endswith(".") and len(meaning) > 20 for _, meaning in by_name.values())
    assert by_name["MAINT_DATABASE_URL"][0] == "unset"
    assert by_name["MAINT_BROKER_URL"][0] == "memory://"
    assert by_name["MAINT_HTTP_ADDRESS"][0] == "127.0.0.1:9464"
    assert by_name["MAINT_JOB_BUDGET"][0] == "5m"
    assert by_name["MAINT_DATA_DIR"][0].startswith("$XDG_DATA_HOME/sema-maintenance")
    assert by_name["MAINT_WORKER_CONCURRENCY"][1].endswith("Allowed: 1 to 64.")


def test_every_default_of_the_reference_is_a_value_that_is_taken() -> None:
    """A reader may copy any line of the table and get what they had."""
    written = {
        name: default
        for name, default, _ in settings_reference()
        if default != "unset" and name != "MAINT_DATA_DIR"
    }

    assert load_settings(written) == load_settings({})


def test_a_byte_that_is_no_text_does_not_break_the_message() -> None:
    """The environment may hold any bytes; what is said about them can be printed anywhere."""
    (problem,) = problems_of({"MAINT_LOG_LEVEL": "loud\udcff"})

    assert problem.encode("utf-8").startswith(b'MAINT_LOG_LEVEL = "loud')


def test_user_and_password_of_the_broker_may_stand_beside_its_address() -> None:
    """Whatever they hold; several brokers share them, and none is shown."""
    settings = load_settings(
        {
            "MAINT_BROKER_URL": "amqp://a:5672/%2F;amqp://b//",
            "MAINT_BROKER_USER": "me@here",
            "MAINT_BROKER_PASSWORD": "s3/c:r;e%t",
        }
    )

    login = "me%40here:s3%2Fc%3Ar%3Be%25t"
    assert settings.broker.get_secret_value() == f"amqp://{login}@a:5672/%2F;amqp://{login}@b//"
    assert "s3/c" not in repr(settings)
    password = {"MAINT_BROKER_URL": "redis://h/0", "MAINT_BROKER_PASSWORD": "p"}
    assert load_settings(password).broker.get_secret_value() == "redis://:p@h/0"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (
            "redis://:s3cret@h/0",
            "is set, and MAINT_BROKER_URL names a user or a password as well; keep one of them.",
        ),
        ("", "has no use with memory://; remove it, or name a broker in MAINT_BROKER_URL."),
    ],
)
def test_two_logins_at_the_broker_are_refused(url: str, problem: str) -> None:
    """Nobody has to guess which of them holds."""
    given = {"MAINT_BROKER_URL": url, "MAINT_BROKER_PASSWORD": "s3cret"}

    assert problems_of(given) == (f"MAINT_BROKER_PASSWORD {problem}",)


def test_scheme_of_the_broker_is_read_in_small_letters() -> None:
    """What goes by it need not ask for capitals."""
    given = {"MAINT_BROKER_URL": "AMQP://h//", "MAINT_BROKER_USER": "me"}

    assert load_settings(given).broker.get_secret_value() == "amqp://me@h//"


@pytest.mark.parametrize("name", ["MAINT_BROKER_USER", "MAINT_BROKER_PASSWORD"])
def test_login_that_is_no_text_is_refused(name: str) -> None:
    """The environment may hold any bytes; an address cannot."""
    given = {"MAINT_BROKER_URL": "redis://h", name: "s3cret\udcff"}

    assert problems_of(given) == (f"{name} is no UTF-8 text; write it in UTF-8.",)
