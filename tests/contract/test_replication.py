"""The worker holds back while a real standby is too far behind, and goes on once it is not."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Final

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from config.policy import parse_policy
from config.settings import load_settings
from store.agents import PostgresAgentStore
from store.database import Database
from store.replication import Lag, Replication, replication
from store.runs import list_runs
from tests import ledgers
from tests.conftest import unavailable
from tests.servers import postgres_15_bin, standby_of, throwaway_postgres
from tests.store.stores import ended
from tests.waiting import wait_until
from worker import manual
from worker.context import Process
from worker.pace import Standbys

POLICY: Final = parse_policy('[defaults]\nmax_age = "1h"\n', "policy.toml")
ROWS: Final = 6


class Pair:
    """A primary with a ledger, its standby, and a process that looks after them."""

    def __init__(self, url: str, standby_url: str) -> None:
        self.url, self._standby_url = url, standby_url
        settings = {"DATABASE_URL": url, "ROWS_PER_BATCH": "2", "REPLICATION_LAG_MAX": "1s"}
        environ = {f"MAINT_{name}": value for name, value in settings.items()}
        self.process = Process(load_settings(environ), POLICY)

    def standby(self, statement: str) -> None:
        with psycopg.connect(self._standby_url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def left(self) -> int:
        with psycopg.connect(self.url, autocommit=True) as connection:
            [[rows]] = connection.execute("select count(*) from background_agents").fetchall()
        return int(rows)

    def do(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def write(self) -> None:
        """What the standby has to replay."""
        self.do("create table if not exists written (at timestamptz)")
        self.do("insert into written values (now())")

    def runs(self) -> int:
        return len(list_runs(self.process.database, "reap", 5))

    def caught_up(self) -> bool:
        seen = replication(self.process.database)
        return seen.replayed is not None and seen.replayed >= seen.written

    def reap(self) -> None:
        manual.by_hand(self.process, "reap", None, policy=POLICY, requested_by="test")


@pytest.fixture(params=ledgers.VERSIONS, ids=lambda version: f"pg{version}")
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Servers of their own: a standby would hold up every other test's."""
    bin_dir = postgres_15_bin() if request.param == "15" else None
    if request.param == "15" and bin_dir is None:
        unavailable(str(ledgers.why_unavailable("15")))
    with throwaway_postgres(bin_dir) as url:
        with closing(ledgers.create(url, "plain")) as database:
            store = PostgresAgentStore(database)
            for number in range(ROWS):
                store.put(ended(f"row {number}"))
        with standby_of(url, bin_dir) as standby_url:
            pair = Pair(url, standby_url)
            wait_until(pair.caught_up, "the standby has all of it")
            yield pair
            pair.process.close()


def falling_behind(pair: Pair) -> Standbys:
    """The standby replays no more, and the process has seen that."""
    pair.standby("select pg_wal_replay_pause()")
    pair.write()
    standbys = pair.process.standbys
    assert standbys is not None
    wait_until(standbys._too_far, "the lag is seen")
    return standbys


def test_nothing_waits_for_a_standby_that_keeps_up(pair: Pair) -> None:
    pair.reap()
    assert pair.left() == 0


def test_work_waits_while_a_standby_is_behind_and_then_goes_on(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """It has stopped replaying, and says nothing of how far behind it is."""
    caplog.set_level(logging.INFO, "sema_maintenance")
    standbys = falling_behind(pair)

    reaping = threading.Thread(target=pair.reap)
    reaping.start()
    wait_until(lambda: pair.runs() == 1, "the run has begun")
    looked_at = standbys._looked_at
    wait_until(lambda: standbys._looked_at != looked_at, "it has looked again")
    assert pair.left() == ROWS

    pair.standby("select pg_wal_replay_resume()")
    reaping.join(30)
    assert not reaping.is_alive()
    assert pair.left() == 0
    told = [record.getMessage() for record in caplog.records if record.name.endswith(".pace")]
    assert told == ["waiting_for_standbys", "standbys_caught_up"]


def test_process_that_is_to_end_does_not_wait(pair: Pair) -> None:
    falling_behind(pair)

    pair.process.stopping.set()
    pair.reap()

    assert pair.left() == ROWS
    pair.standby("select pg_wal_replay_resume()")


def test_standby_that_may_not_be_seen_is_told_once_and_holds_nothing_back(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    pair.do("create role seer login")
    with closing(Database(make_conninfo(pair.url, user="seer"), "public")) as database:
        assert replication(database).unseen == 1
        standbys = Standbys(database, timedelta(seconds=1), time.monotonic, time.sleep)
        standbys.wait(lambda: False)
        standbys._looked_at = None
        standbys.wait(lambda: False)
    [said] = [r for r in caplog.records if r.getMessage() == "standbys_not_seen"]
    assert "pg_read_all_stats" in said.remedy  # type: ignore[attr-defined]


def test_lag_is_the_time_since_the_log_was_where_the_standby_is() -> None:
    """Seen at each look; what it says of itself counts where that is more."""
    lag = Lag()
    assert lag.seconds(Replication(100, 100, 0, 0), 10.0) == 0
    assert lag.seconds(Replication(200, 100, 0, 0), 11.0) == 0
    assert lag.seconds(Replication(300, 100, 0, 0), 14.0) == 3
    assert lag.seconds(Replication(300, 200, 0, 0), 15.0) == 1
    assert lag.seconds(Replication(300, 200, 7500, 0), 16.0) == 7.5
    assert lag.seconds(Replication(300, 300, 7500, 0), 17.0) == 0
    assert lag.seconds(Replication(400, None, 0, 0), 18.0) == 0
