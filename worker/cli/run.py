"""`run`: everything in one process, on an embedded Postgres or a given one."""

from __future__ import annotations

import logging
import signal
import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from worker.cli.target import look_over

if TYPE_CHECKING:
    from config.policy import Policy
    from config.settings import Settings
    from worker.context import Process
    from worker.sample.generator import SampleLedger

SAMPLE_RUN = "load_sample"


@click.command(
    epilog="Example: sema-maintenance run --sample",
    short_help="Everything in one process; Ctrl-C stops it.",
)
@click.option(
    "--sample",
    is_flag=True,
    help="Load the sample ledger into an empty one and use its short policy.",
)
def run(sample: bool) -> None:
    """Beat, worker, exporter and database in one process, until Ctrl-C.

    Without MAINT_DATABASE_URL an embedded Postgres in MAINT_DATA_DIR is made and used; its ledger
    is still there the next time.
    """
    from config.settings import load_settings
    from worker.context import Process, install
    from worker.http import try_address
    from worker.logs import configure

    settings = load_settings()
    if settings.log_format == "auto":
        # WHY text in a pipe too: this command is there to be watched.
        settings = settings.model_copy(update={"log_format": "text"})
    configure(settings.log_level, settings.log_format)
    # WHY first: what cannot be used is said before a database is made or anything is written.
    policy = _policy(settings, sample=sample)
    with _address_or_refusal(settings):
        try_address(settings.http_address)
    with _database(settings) as (url, embedded):
        settings = settings.model_copy(update={"database_url": url})
        process = Process(settings, policy, all_in_one=True)
        install(process)
        try:
            # It is not ready before its consumer has begun.
            process.loops.consumer.lost()
            with _served(process) as address:
                click.echo(f"page      http://{address}/")
                _prepare(process, embedded=embedded, sample=sample)
                ended_well = _work_until_stopped(process, address)
        finally:
            process.close()
    if not ended_well:
        raise click.ClickException("the beat ended by itself; see the log, and start anew")
    click.echo("stopped; the ledger is kept")


@contextmanager
def _database(settings: Settings) -> Iterator[tuple[object, bool]]:
    """The database to use and whether it is our own."""
    from pydantic import SecretStr

    from worker.embedded import embedded_postgres

    if settings.database_url is not None:
        yield settings.database_url, False
        return
    folder = settings.data_dir / "postgres"
    folder.mkdir(parents=True, exist_ok=True)
    with embedded_postgres(folder, create=True) as url:
        yield SecretStr(url), True


def _policy(settings: Settings, *, sample: bool) -> Policy:
    from config.policy import load_policy
    from worker.context import read_policy

    if not sample:
        return read_policy(settings)
    with resources.as_file(resources.files("worker.sample") / "policy.toml") as file:
        return load_policy(Path(file))


@contextmanager
def _served(process: Process) -> Iterator[str]:
    """The page, the probes and the metrics, at the address that is given."""
    from worker.http import serve

    with _address_or_refusal(process.settings):
        served = serve(process)
    try:
        yield str(served.address)
    finally:
        served.close()


@contextmanager
def _address_or_refusal(settings: Settings) -> Iterator[None]:
    """Raise ConfigError for an address that nothing can be served at."""
    from config.errors import ConfigError

    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{settings.http_address} cannot be served ({error.strerror}); "
            "set MAINT_HTTP_ADDRESS to a free address"
        ) from error


def _prepare(process: Process, *, embedded: bool, sample: bool) -> None:
    from store.migrate import create_ledger, migrate
    from store.needs import reading

    if embedded:
        create_ledger(process.database)
    else:
        look_over(process, reading("background_agents", "checkpoints", "agent_sessions"))
    if sample:
        _refuse_other_rows(process)
    migrate(process.database)
    if sample:
        _load_sample(process)


def _sample() -> SampleLedger:
    from worker.sample.generator import EXAMPLE_SEED, sample_ledger

    return sample_ledger(EXAMPLE_SEED, time.time_ns() // 1_000_000)


def _refuse_other_rows(process: Process) -> None:
    """Raise ConfigError where the ledger holds scopes that the sample policy was not made for."""
    from config.errors import ConfigError
    from store.agents import PostgresAgentStore

    ours = {agent["scope"] for agent in _sample().agents}
    others = [s for s in PostgresAgentStore(process.database).list_scopes() if s not in ours]
    if others:
        raise ConfigError(
            f"the ledger holds a scope that is not the sample's, {others[0]!r}, and the sample "
            "policy would delete its rows within minutes; run without --sample, or on another "
            "database"
        )


def _load_sample(process: Process) -> None:
    """Load the sample once; a load that was cut off is made up for."""
    from store import ledger_io, runs
    from worker.sample.generator import json_lines

    before = runs.list_runs(process.database, SAMPLE_RUN, 1)
    if before and before[0].state != "running":
        return
    if not before and not ledger_io.is_empty(process.database):
        return
    run = (
        before[0]
        if before
        else runs.open_run(process.database, SAMPLE_RUN, "run --sample", (), uuid.uuid4())
    )
    lines = (line.encode() for line in json_lines(_sample()))
    for _ in ledger_io.import_lines(process.database, lines):
        # What was loaded before the load was cut off is refused, and stays as it is.
        pass
    runs.end_handing_out(process.database, run)


def _work_until_stopped(process: Process, address: str) -> bool:
    """Beat and worker, until a signal or the end of the beat; whether it was the signal."""
    from celery.beat import Service
    from celery.platforms import SecurityWarning

    from worker.celery import app

    # WHY ignored: it warns of pickled messages to a worker of root; ours reads JSON only.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    # WHY named: by itself the service takes another scheduler, which keeps a file.
    beat = Service(app, scheduler_cls=app.conf.beat_scheduler)
    died = threading.Event()
    ticking = threading.Thread(target=_beat, args=(beat, process, died), name="beat", daemon=True)
    worker = app.Worker(pool="threads", quiet=True)
    ticking.start()
    try:
        # WHY suppressed: a Ctrl-C that comes before the worker listens for it is no failure.
        with suppress(KeyboardInterrupt):
            _say_what_runs(process, address)
            worker.start()
    finally:
        process.stopping.set()
        # WHY no join: it looks up from its sleep within seconds, and holds nothing that must be put
        # in order; its thread is a daemon.
        beat.stop()
    return not died.is_set()


def _beat(beat: Any, process: Process, died: threading.Event) -> None:
    """Tick until told to stop. A process without a beat is of no use: it ends, and says so."""
    problem = "it stopped ticking"
    try:
        beat.start(embedded_process=False)
    except Exception as error:  # noqa: BLE001 - a beat that ends without a word is never noticed
        problem = str(error)
    if not process.stopping.is_set():
        process.loops.beat.end()
        logging.getLogger("sema_maintenance.beat").error("beat_ended", extra={"error": problem})
        died.set()
        signal.raise_signal(signal.SIGTERM)


def _say_what_runs(process: Process, address: str) -> None:
    from config.durations import format_duration
    from worker.started import log_started

    click.echo(f"database  {process.database.describe()}")
    policy = process.policy
    click.echo(f"policy    {policy.path or f'{policy.source}: nothing is deleted'}")
    click.echo(f"metrics   http://{address}/metrics")
    for job, entry in process.entries.items():
        click.echo(f"job       {job} every {format_duration(entry.every)}")
    click.echo("Each run is shown below as it ends; Ctrl-C stops after the batch in hand.")
    log_started(process, "run")
