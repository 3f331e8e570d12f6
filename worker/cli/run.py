"""`run`: everything in one process, on an embedded Postgres or a given one."""

from __future__ import annotations

import logging
import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from config.policy import Policy
    from config.settings import Settings
    from worker.context import Process

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
    from worker.logs import configure

    settings = load_settings()
    if settings.log_format == "auto":
        # WHY text in a pipe too: this command is there to be watched.
        settings = settings.model_copy(update={"log_format": "text"})
    configure(settings.log_level, settings.log_format)
    with _database(settings) as (url, embedded):
        settings = settings.model_copy(update={"database_url": url})
        process = Process(settings, _policy(settings, sample=sample), all_in_one=True)
        install(process)
        try:
            _prepare(process, embedded=embedded, sample=sample)
            _serve_until_stopped(process)
        finally:
            process.close()
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


def _prepare(process: Process, *, embedded: bool, sample: bool) -> None:
    from store.migrate import create_ledger, migrate

    if embedded:
        create_ledger(process.database)
    migrate(process.database)
    if sample:
        _load_sample(process)


def _load_sample(process: Process) -> None:
    """Fill an empty ledger; refuse one whose rows the sample policy was not made for."""
    from config.errors import ConfigError
    from store import ledger_io, runs
    from worker.sample.generator import EXAMPLE_SEED, json_lines, sample_ledger

    if runs.list_runs(process.database, SAMPLE_RUN, 1):
        return
    if not ledger_io.is_empty(process.database):
        raise ConfigError(
            "the ledger holds rows that are not the sample's, and the sample policy would delete "
            "them within minutes; run without --sample, or on another database"
        )
    now = time.time_ns() // 1_000_000
    ledger_io.load_lines(process.database, json_lines(sample_ledger(EXAMPLE_SEED, now)))
    loaded = runs.open_run(process.database, SAMPLE_RUN, "run --sample", (), uuid.uuid4())
    runs.end_handing_out(process.database, loaded)


def _serve_until_stopped(process: Process) -> None:
    from celery.beat import Service
    from celery.platforms import SecurityWarning

    from config.errors import ConfigError
    from worker.celery import app
    from worker.http import serve

    try:
        served = serve(process)
    except OSError as error:
        raise ConfigError(
            f"{process.settings.http_address} cannot be served ({error.strerror}); "
            "set MAINT_HTTP_ADDRESS to a free address"
        ) from error
    _say_what_runs(process, str(served.address))
    # WHY ignored: it warns of pickled messages to a worker of root; ours reads JSON only.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    beat = Service(app)
    ticking = threading.Thread(target=_beat, args=(beat, process), name="beat", daemon=True)
    worker = app.Worker(pool="threads", quiet=True)
    ticking.start()
    try:
        worker.start()
    finally:
        process.stopping.set()
        # WHY no join: it looks up from its sleep within seconds, and holds nothing that must be put
        # in order; its thread is a daemon.
        beat.stop()
        served.close()


def _beat(beat: Any, process: Process) -> None:
    log = logging.getLogger("sema_maintenance.beat")
    try:
        beat.start(embedded_process=False)
    except Exception as error:  # noqa: BLE001 - a beat that ends without a word is never noticed
        log.error("beat_ended", extra={"error": str(error)})
    if not process.stopping.is_set():
        log.error("beat_ended", extra={"error": "no job is scheduled any more; start anew"})


def _say_what_runs(process: Process, address: str) -> None:
    from config.durations import format_duration

    click.echo(f"database  {process.database.describe()}")
    click.echo(f"policy    {process.policy.source}")
    click.echo(f"metrics   http://{address}/metrics")
    for job, entry in process.entries.items():
        click.echo(f"job       {job} every {format_duration(entry.every)}")
    click.echo("Each run is shown below as it ends; Ctrl-C stops after the batch in hand.")
