"""The settings of the worker's processes, each from one variable of the environment.

`load_settings` is the way in. A variable is named MAINT_ and the field's name in capitals; white
space around its value is ignored, and one that is then empty counts as unset.
"""

import os
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from config.addresses import Address
from config.brokers import broker_url_for, is_text, names_a_login
from config.durations import format_duration
from config.errors import SettingsError, did_you_mean
from config.variables import (
    Choice,
    Span,
    Whole,
    read_address,
    read_broker_url,
    read_database_url,
    read_identifier,
    read_path,
    read_release_url,
)

PREFIX: Final = "MAINT_"
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "text"]
WorkerPool = Literal["threads", "prefork"]
ReleaseBackend = Literal["postgres", "http", "none"]

# WHY no zero: to Postgres it means no limit at all.
_Timeout = Annotated[timedelta, BeforeValidator(Span(timedelta(milliseconds=1), timedelta(days=1)))]
# WHY whole seconds and up: libpq knows nothing smaller.
_ConnectTimeout = Annotated[
    timedelta, BeforeValidator(Span(timedelta(seconds=1), timedelta(hours=1)))
]
# WHY a minute: a beat whose broker takes connections and says nothing is held up for most of one.
_Liveness = Annotated[timedelta, BeforeValidator(Span(timedelta(minutes=1), timedelta(hours=1)))]
_Turn = Annotated[timedelta, BeforeValidator(Span(timedelta(seconds=1), timedelta(days=1)))]
_Retention = Annotated[timedelta, BeforeValidator(Span(timedelta(seconds=1), timedelta(days=3650)))]

_Request = Annotated[timedelta, BeforeValidator(Span(timedelta(seconds=10), timedelta(days=30)))]

SYSTEM_DATA_DIR: Final = Path("/var/lib/sema-maintenance")
# What Kubernetes sets in every pod for a service whose name begins with "maint". The values of the
# last two shapes are told apart too: MAINT_HTTP_PORT=9464 is a mistake, not a service.
_SERVICE_LINK: Final = re.compile(
    r"MAINT_(?:\w+_)?(?:"
    r"SERVICE_HOST=.*"
    r"|SERVICE_PORT(?:_\w+)?=[0-9]+"
    r"|PORT(?:_[0-9]+_(?:TCP|UDP|SCTP))?=(?:tcp|udp|sctp)://.*"
    r"|PORT_[0-9]+_(?:TCP|UDP|SCTP)_(?:PROTO|PORT|ADDR)=.*"
    r")"
)


def default_data_dir(environ: Mapping[str, str], *, is_root: bool) -> Path:
    """Where data lives when nobody says: the XDG folder of the user, or the system's own."""
    xdg_data_home, home = environ.get("XDG_DATA_HOME", ""), environ.get("HOME", "")
    if is_root:
        return SYSTEM_DATA_DIR
    # The XDG specification tells to ignore a relative path.
    if xdg_data_home.startswith("/"):
        return Path(xdg_data_home, "sema-maintenance")
    return Path(home, ".local/share/sema-maintenance") if home else SYSTEM_DATA_DIR


class Settings(BaseSettings):
    """Everything the environment decides. Immutable; addresses with passwords are secrets."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", hide_input_in_errors=True
    )

    database_url: Annotated[SecretStr | None, BeforeValidator(read_database_url)] = Field(
        default=None,
        description="Postgres database of the ledger, as a postgresql:// URL or libpq keywords; "
        "what it leaves out is taken from libpq's own PGHOST, PGUSER, PGPASSWORD and so on. Unset, "
        "the embedded database of the data folder is used.",
    )
    ledger_schema: Annotated[str, BeforeValidator(read_identifier)] = Field(
        default="public",
        description="Schema of the server's tables: letters, digits and _, not quoted, up to 63.",
    )
    broker_url: Annotated[SecretStr, BeforeValidator(read_broker_url)] = Field(
        default=SecretStr("memory://"),
        description="Message broker: redis://, rediss:// (both also Valkey), amqp:// or amqps://; "
        "memory:// works inside one process only.",
    )
    broker_user: str | None = Field(
        default=None, description="User at the broker, where MAINT_BROKER_URL names none."
    )
    broker_password: SecretStr | None = Field(
        default=None, description="Password at the broker, as it is, where the URL holds none."
    )
    data_dir: Annotated[Path, BeforeValidator(read_path)] = Field(
        default_factory=lambda: default_data_dir(os.environ, is_root=os.geteuid() == 0),
        description="Folder of the embedded database and other local files.",
    )
    policy_file: Annotated[Path | None, BeforeValidator(read_path)] = Field(
        default=None,
        description="The retention policy, a TOML file. Unset, nothing is deleted.",
    )
    http_address: Annotated[Address, NoDecode, BeforeValidator(read_address)] = Field(
        default=Address("127.0.0.1", 9464),
        description="Host and port of the page, /metrics, /healthz and /readyz; "
        "port 0 takes any free one.",
    )
    liveness_limit: _Liveness = Field(
        default=timedelta(minutes=2),
        description="How long a process's beat or consumer may stand still before /healthz says "
        "503. Waiting for the broker is no standing still.",
    )
    log_level: Annotated[LogLevel, BeforeValidator(Choice(get_args(LogLevel)))] = Field(
        default="info", description="The least severe lines that are logged."
    )
    log_format: Annotated[LogFormat, BeforeValidator(Choice(get_args(LogFormat)))] = Field(
        default="auto", description="Form of a log line; auto is text on a terminal, else json."
    )
    worker_pool: Annotated[WorkerPool, BeforeValidator(Choice(get_args(WorkerPool)))] = Field(
        default="threads", description="What runs parts of jobs side by side in one worker."
    )
    worker_concurrency: Annotated[int, BeforeValidator(Whole(1, 64))] = Field(
        default=2, description="Parts of jobs that one worker runs at a time."
    )
    statement_timeout: _Timeout = Field(
        default=timedelta(seconds=30), description="Longest time of one SQL statement."
    )
    lock_timeout: _Timeout = Field(
        default=timedelta(milliseconds=400),
        description="Longest wait of a statement for one lock; what is locked for longer is passed "
        "over.",
    )
    idle_in_transaction_timeout: _Timeout = Field(
        default=timedelta(seconds=60),
        description="How long an open transaction may do nothing before Postgres ends it.",
    )
    connect_timeout: _ConnectTimeout = Field(
        default=timedelta(seconds=5), description="Longest time to connect to the database."
    )
    job_budget: _Turn = Field(
        default=timedelta(minutes=5),
        description="Wall clock of one part of a job; what is left waits for the next.",
    )
    scopes_per_part: Annotated[int, BeforeValidator(Whole(1, 100_000))] = Field(
        default=200, description="Scopes that one message of a run carries."
    )
    scopes_per_batch: Annotated[int, BeforeValidator(Whole(1, 10_000))] = Field(
        default=20, description="Scopes that one transaction works on."
    )
    rows_per_batch: Annotated[int, BeforeValidator(Whole(1, 1_000_000))] = Field(
        default=5000, description="Rows over all scopes of one transaction."
    )
    max_rows_per_second: Annotated[int, BeforeValidator(Whole(1, 100_000_000))] = Field(
        default=20_000,
        description="Rows that one worker process, with all its threads or children, changes in a "
        "second at most.",
    )
    replication_lag_max: Annotated[
        timedelta | None, BeforeValidator(Span(timedelta(seconds=1), timedelta(days=1)))
    ] = Field(
        default=None,
        description="While a standby is further behind than this, the worker begins no batch; it "
        "takes pg_read_all_stats to see that. Unset, nobody looks.",
    )
    request_expires: _Request = Field(
        default=timedelta(days=1),
        description="How long an operator's request may wait for a worker; then it is refused, for "
        "it may not be meant any more.",
    )
    journal_retention: _Retention = Field(
        default=timedelta(days=1),
        description="How long the journal keeps the rows of a run after its end, before they are "
        "added up; longer than a part of it may be lost and come back.",
    )
    run_retention: _Retention = Field(
        default=timedelta(days=30),
        description="How long runs, operators' requests, holds that are over, and who did what "
        "stay on record; each job's newest completed run always does.",
    )
    harvest_retention: _Retention = Field(
        default=timedelta(days=30),
        description="How long memory-harvest rejections stay after they were counted.",
    )
    release_backend: Annotated[
        ReleaseBackend, BeforeValidator(Choice(get_args(ReleaseBackend)))
    ] = Field(
        default="postgres",
        description="Where transcripts are deleted: in the ledger's agent_sessions, by requests to "
        "MAINT_RELEASE_URL, or nowhere: then their releases are dropped when due.",
    )
    release_url: Annotated[str | None, BeforeValidator(read_release_url)] = Field(
        default=None,
        description="What is sent a DELETE for each transcript, with {scope} and {session_id} in "
        "its path or query; http:// or https://, no password.",
    )
    release_token_file: Annotated[Path | None, BeforeValidator(read_path)] = Field(
        default=None,
        description="File with the bearer token of these requests, read anew for every few of "
        "them. Unset, they carry none.",
    )
    release_timeout: Annotated[
        timedelta, BeforeValidator(Span(timedelta(milliseconds=100), timedelta(hours=1)))
    ] = Field(
        default=timedelta(seconds=10),
        description="Longest time of one such request, from connecting to the answer.",
    )
    release_concurrency: Annotated[int, BeforeValidator(Whole(1, 64))] = Field(
        default=4, description="Such requests that are under way at a time."
    )
    release_batch: Annotated[int, BeforeValidator(Whole(1, 10_000))] = Field(
        default=200, description="Transcripts that are claimed and released at a time."
    )
    release_lease: _Turn = Field(
        default=timedelta(minutes=5),
        description="How long a claimed release belongs to its worker before another may take it.",
    )
    release_attempts: Annotated[int, BeforeValidator(Whole(1, 1000))] = Field(
        default=8, description="Attempts to release one transcript before it is left as dead."
    )
    release_backoff: _Timeout = Field(
        default=timedelta(seconds=30),
        description="Wait after the first failed release; it doubles with each further one.",
    )
    release_backoff_max: _Timeout = Field(
        default=timedelta(hours=1), description="Longest wait between two attempts at a release."
    )

    @property
    def broker(self) -> SecretStr:
        """The broker's address with user and password in it, wherever they came from."""
        return SecretStr(
            broker_url_for(
                self.broker_url.get_secret_value(),
                self.broker_user,
                None if self.broker_password is None else self.broker_password.get_secret_value(),
            )
        )

    @model_validator(mode="after")
    def _one_login_at_the_broker(self) -> Self:
        url = self.broker_url.get_secret_value()
        for name in ("broker_user", "broker_password"):
            if (given := getattr(self, name)) is None:
                continue
            if not is_text(given if isinstance(given, str) else given.get_secret_value()):
                raise ValueError(f"{variable(name)} is no UTF-8 text; write it in UTF-8")
            if url.startswith("memory:"):
                raise ValueError(
                    f"{variable(name)} has no use with memory://; remove it, or name a broker in "
                    f"{PREFIX}BROKER_URL"
                )
            if names_a_login(url):
                raise ValueError(
                    f"{variable(name)} is set, and {PREFIX}BROKER_URL names a user or a password "
                    "as well; keep one of them"
                )
        return self

    @model_validator(mode="after")
    def _backoff_grows(self) -> Self:
        if self.release_backoff > self.release_backoff_max:
            raise ValueError(
                f"{PREFIX}RELEASE_BACKOFF = {format_duration(self.release_backoff)} is longer than "
                f"{PREFIX}RELEASE_BACKOFF_MAX = {format_duration(self.release_backoff_max)}; "
                "shorten the first or lengthen the second"
            )
        return self

    @model_validator(mode="after")
    def _release_is_whole(self) -> Self:
        backend = self.release_backend
        if backend == "http" and self.release_url is None:
            raise ValueError(
                f"{PREFIX}RELEASE_BACKEND = http says nothing of where to; set "
                f"{PREFIX}RELEASE_URL, or choose another"
            )
        for name in ("release_url", "release_token_file"):
            if backend != "http" and getattr(self, name) is not None:
                raise ValueError(
                    f"{variable(name)} has no use with {PREFIX}RELEASE_BACKEND = {backend}; "
                    "remove it, or set the second to http"
                )
        if backend == "http" and self.release_lease < 2 * self.release_timeout:
            raise ValueError(
                f"{PREFIX}RELEASE_LEASE = {format_duration(self.release_lease)} is shorter than "
                f"twice {PREFIX}RELEASE_TIMEOUT = {format_duration(self.release_timeout)}; "
                "lengthen the first or shorten the second"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - named by the library
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - named by the library
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - named by the library
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - named by the library
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take values from the caller only: `load_settings` decides which environment is read."""
        return (init_settings,)


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of this process, or of another environment when one is given.

    Raises SettingsError with a sentence for each variable that cannot be used, also for one named
    MAINT_ that is no setting, unless Kubernetes sets it for a service of that name.
    """
    environ = os.environ if environ is None else environ
    given = {
        name: stripped
        for name, value in environ.items()
        if name.startswith(PREFIX) and (stripped := value.strip())
    }
    problems = list(_unknown(given))
    source = EnvSettingsSource(Settings)
    # WHY replace: the source has read the process's own environment; ours is an argument. Its names
    # are in small letters, and only ours in capitals count, as for any variable.
    names = _names()
    source.env_vars = {name.lower(): value for name, value in given.items() if name in names}
    values = source()
    values.setdefault("data_dir", default_data_dir(environ, is_root=os.geteuid() == 0))
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        problems += [_sentence(each) for each in error.errors(include_url=False)]
    if problems:
        # WHY outside of the handler: pydantic's error holds the values, and would be the cause.
        raise SettingsError(*problems)
    return settings


def variable(field_name: str) -> str:
    """The name of a field's variable."""
    return f"{PREFIX}{field_name.upper()}"


def _names() -> frozenset[str]:
    return frozenset(variable(field_name) for field_name in Settings.model_fields)


def _unknown(given: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each variable that only looks like a setting; its value may be a secret."""
    names = _names()
    short_names = [name.removeprefix(PREFIX) for name in names]
    for name, value in given.items():
        if name in names or _SERVICE_LINK.fullmatch(f"{name}={value}"):
            continue
        # WHY without the prefix: what all of them share would make any two look alike.
        meant = did_you_mean(name.removeprefix(PREFIX), short_names)
        yield (
            f"{name} is not a setting; did you mean {PREFIX}{meant}?"
            if meant is not None
            else f"{name} is not a setting; correct its name or remove it."
        )


def _sentence(error: ErrorDetails) -> str:
    is_ours = error["type"] == "value_error"
    reason = str(error["ctx"]["error"]) if is_ours else f"is refused: {error['msg']}"
    return f"{variable(str(error['loc'][0]))} {reason}." if error["loc"] else f"{reason}."
