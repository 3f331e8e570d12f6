"""`python -m worker.sample`: the sample ledger on standard output, as JSON lines."""

import time

import click

from worker.sample.generator import EXAMPLE_SEED, json_lines, sample_ledger


@click.command()
@click.option("--seed", default=EXAMPLE_SEED, show_default=True, help="Another seed, other rows.")
@click.option(
    "--now",
    "now_ms",
    type=int,
    metavar="MS",
    help="The instant the rows are aged for, in ms since 1970.  [default: the time of day]",
)
def main(seed: int, now_ms: int | None) -> None:
    """Write a few hundred made-up agents, with checkpoints and transcripts."""
    if now_ms is None:
        now_ms = time.time_ns() // 1_000_000
    for line in json_lines(sample_ledger(seed, now_ms)):
        # WHY bytes: the file is UTF-8 whatever the terminal's encoding.
        click.echo(line.encode())


if __name__ == "__main__":
    main()
