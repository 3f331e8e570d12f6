"""A restore against a drain, a reap and a new row of the name: one of the two, and never both."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier, Event

import psycopg
import pytest

from store.batches import BatchSize
from store.database import Database
from store.errors import NotRestorable, StoreError
from store.holds import list_holds
from store.undo import Restored, erase
from tests.race.background import Background, await_condition
from tests.race.conftest import Crew
from tests.race.jobs import PATIENT, SteppedDatabase
from tests.race.rows import Rows
from tests.store.undoing import ADA, SECOND, WINDOW, Undoing

ONE_ROW = BatchSize(rows=1, scopes=1)
OVER = WINDOW + 60 * SECOND
MANY = 120


class Restorer:
    """Somebody who restores, on connections of their own."""

    def __init__(self, undoing: Undoing, rows: Rows, database: SteppedDatabase) -> None:
        self.undoing = undoing
        self.database = database
        self._rows = rows

    def start(self, handle: str) -> Background[Restored]:
        return Background(
            lambda: self.undoing.restore(handle), self._rows, self.database.application
        )


@pytest.fixture
def undoing(ledger: tuple[str, Database], crew: Crew) -> Iterator[Undoing]:
    """The jobs' side."""
    with closing(Undoing(ledger[0], crew.jobs(PATIENT, "jobs").database)) as undoing:
        yield undoing


@pytest.fixture
def restorer(ledger: tuple[str, Database], crew: Crew, rows: Rows) -> Iterator[Restorer]:
    database = crew.jobs(PATIENT, "restorer").database
    with closing(Undoing(ledger[0], database)) as undoing:
        yield Restorer(undoing, rows, database)


def stepped(undoing: Undoing) -> SteppedDatabase:
    assert isinstance(undoing.database, SteppedDatabase)
    return undoing.database


def deleted(undoing: Undoing, *handles: str) -> None:
    for handle in handles:
        undoing.row(handle, f"of {handle}")
        undoing.talk(f"of {handle}")
    assert undoing.reap() == len(handles)


def test_a_drain_at_full_speed_and_restores(undoing: Undoing, restorer: Restorer) -> None:
    """For each row: back with its transcript and no entry, or refused and released."""
    handles = [f"a{n:03}" for n in range(MANY)]
    deleted(undoing, *handles)
    both, over = Barrier(2), Event()

    def drain() -> int:
        both.wait()
        released = 0
        while not over.is_set():
            released += undoing.drain(OVER, batch=2).get("released", 0)
        return released

    def restore() -> list[str]:
        both.wait()
        await_condition(lambda: stepped(undoing).ran["claim_releases"] > 0, "a claim")
        back = []
        # WHY from the other end: so that they meet.
        for handle in reversed(handles):
            try:
                restorer.undoing.restore(handle)
            except NotRestorable:
                continue
            back.append(handle)
        over.set()
        return back

    with ThreadPoolExecutor(2) as pool:
        drained, restored = pool.submit(drain), pool.submit(restore)
        back, released = restored.result(120), drained.result(120)
    released += undoing.drain(OVER).get("released", 0)

    assert 0 < len(back) < MANY
    assert undoing.handles() == sorted(back)
    assert undoing.talks() == sorted(f"of {handle}" for handle in back)
    assert released == MANY - len(back)
    assert undoing.kept("handle") == []
    assert len(list_holds(undoing.database, None, 1000, over_too=False)) == len(back)


def test_a_drain_that_has_claimed_it_wins(undoing: Undoing, restorer: Restorer) -> None:
    """It judges; the restore waits for it, finds it gone, and nothing of it is left."""
    deleted(undoing, "a")
    held: list[Background[Restored]] = []

    def begin() -> None:
        held.append(restorer.start("a"))
        held[0].waits_for(stepped(undoing).backend_pid)

    stepped(undoing).after("release_sessions", begin)

    assert undoing.drain(OVER) == {"released": 1}
    with pytest.raises(NotRestorable):
        held[0].result()
    assert (undoing.handles(), undoing.talks()) == ([], [])


def test_a_drain_comes_to_a_restore_that_is_not_committed(
    undoing: Undoing, restorer: Restorer
) -> None:
    """It passes over the entry, which is locked; there is nothing for it afterwards."""
    deleted(undoing, "a")
    restorer.database.after("restore_entry", lambda: drained.append(undoing.drain(OVER)))
    drained: list[dict[str, int]] = []

    restorer.undoing.restore("a")

    assert drained == [{}]
    assert undoing.drain(OVER) == {}
    assert (undoing.handles(), undoing.talks()) == (["a"], ["of a"])


def test_who_deletes_the_transcript_without_the_holds_lock_is_waited_for(
    undoing: Undoing, restorer: Restorer
) -> None:
    """A drain of a release that knows no holds: its transaction comes first, or finds the row."""
    deleted(undoing, "a")
    with psycopg.connect(undoing.url) as other:
        other.execute(f"delete from {undoing.schema}.agent_sessions".encode())
        restoring = restorer.start("a")
        restoring.waits_for(other.info.backend_pid)
        other.commit()

    with pytest.raises(NotRestorable, match="its transcript 'of a' is gone"):
        restoring.result()
    assert undoing.handles() == []


def test_a_new_row_of_the_name_that_is_not_committed_is_waited_for(
    undoing: Undoing, restorer: Restorer
) -> None:
    deleted(undoing, "a")
    columns = "scope, handle, rev, status, owner, session_scoped, writer_id, spawned_at, updated_at"
    with psycopg.connect(undoing.url) as writer:
        writer.execute(
            f"insert into {undoing.schema}.background_agents ({columns})"
            " values ('s', 'a', 1, 'running', 'o', false, 'w', 1, 1)".encode()
        )
        restoring = restorer.start("a")
        restoring.waits_for(writer.info.backend_pid)
        writer.commit()

    with pytest.raises(NotRestorable, match="an agent of that name is there again"):
        restoring.result()
    assert [row["rev"] for row in undoing.spelled().values()] == ["1"]


def test_a_reap_in_hand_is_waited_for_and_the_next_batch_finds_the_hold(
    undoing: Undoing, restorer: Restorer
) -> None:
    """It asked what is held before the restore; what it then deletes is not the restored row."""
    deleted(undoing, "b")
    for handle in ("a", "c"):
        undoing.row(handle)
    held: list[Background[Restored]] = []

    def begin() -> None:
        held.append(restorer.start("b"))
        held[0].waits_for(stepped(undoing).backend_pid)

    stepped(undoing).before("reap", begin)

    undoing.reap(size=ONE_ROW)
    assert held[0].result().handle == "b"
    undoing.reap(size=ONE_ROW)

    assert undoing.handles() == ["b"]


def test_an_erase_finds_what_was_restored_gone(undoing: Undoing, restorer: Restorer) -> None:
    """It waits for the restore, which has the holds' lock alone."""
    deleted(undoing, "a", "b")
    erasing: list[Background[list[int]]] = []

    def begin() -> None:
        act: Callable[[], list[int]] = lambda: [*erase(undoing.database, "s", ADA)]  # noqa: E731
        erasing.append(Background(act, restorer._rows, stepped(undoing).application))
        erasing[0].pauses()

    restorer.database.after("restore_entry", begin)

    restorer.undoing.restore("a")

    assert erasing[0].result() == [1]
    assert undoing.drain(OVER) == {"released": 1}
    assert (undoing.handles(), undoing.talks()) == (["a"], ["of a"])


STEPS = [
    ("before", "lock_holds"),
    ("before", "restore_find"),
    ("before", "restore_transcript"),
    ("before", "restore_entry"),
    ("before", "restore_columns"),
    ("before", "restore_done"),
    ("after", "restore_done"),
    ("after", "hold_add"),
    ("after", "journal_add"),
    ("after", "add_action"),
]


@pytest.mark.parametrize(("moment", "statement"), STEPS)
def test_a_restore_that_is_killed_has_changed_nothing(
    undoing: Undoing, restorer: Restorer, moment: str, statement: str
) -> None:
    deleted(undoing, "a")
    before = undoing.kept("handle", "record::text", "not_before")

    def kill() -> None:
        undoing.query("select pg_terminate_backend(%s, 10000)", restorer.database.backend_pid)

    {"before": restorer.database.before, "after": restorer.database.after}[moment](statement, kill)

    with pytest.raises(StoreError):
        restorer.undoing.restore("a")

    assert undoing.handles() == []
    assert undoing.kept("handle", "record::text", "not_before") == before
    for table in ("holds", "actions"):
        assert undoing.query(f"select * from maintenance.{table}") == []
    assert undoing.query("select * from maintenance.journal where job = 'restore'") == []
    assert restorer.undoing.restore("a").rev == 8
    assert undoing.talks() == ["of a"]
