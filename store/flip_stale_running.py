"""Mark running rows whose writer fell silent as failed, batch by batch, with the attribution.

Without guards the row alone is judged, in the statement that writes. With them every silent row is
judged first, by how long it was seen unchanged, and written by compare-and-set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from psycopg.rows import DictRow

from store.batches import NO_RUN, Backlog, BatchSize, Done, Stamp, journal_left
from store.breakers import Allowance, trip, tripped
from store.database import Database, Transaction
from store.guards import UNGUARDED, Guards
from store.isolation import Turn, work_through
from store.judged import Judgement, Left, passed_over, without_lost_checkpoints
from store.progress import Progress
from store.records import BIGINT_MIN, STALE_RUNNING_REAP_ATTRIBUTION
from store.retention import Milliseconds, before
from store.sightings import seen_long_enough, sight

JOB: Final = "flip_stale_running"
NOTHING_HELD: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class _Place:
    scope: str
    silent_since: int
    after_handle: str = ""
    stop_handle: str | None = None


def places_of(ages: Sequence[tuple[str, Milliseconds]], now: int) -> list[_Place]:
    """Where anything can be silent for so long, and since when that counts."""
    cutoffs = ((scope, before(now, age)) for scope, age in ages)
    return [_Place(scope, cutoff) for scope, cutoff in cutoffs if cutoff > BIGINT_MIN]


def _params(places: Sequence[_Place]) -> dict[str, object]:
    return {
        "scopes": [p.scope for p in places],
        "silent_sinces": [p.silent_since for p in places],
        "after_handles": [p.after_handle for p in places],
        "stop_handles": [p.stop_handle for p in places],
    }


def _guarded(guards: Guards) -> bool:
    """Whether a row is judged by anything but itself."""
    return guards.sightings or guards.outage or guards.breakers or guards.plausible_times


def flip_stale_running(
    database: Database,
    ages: Sequence[tuple[str, Milliseconds]],
    stamp: Stamp,
    size: BatchSize,
    *,
    ask_checkpoints: bool = True,
    guards: Guards = UNGUARDED,
    held: Mapping[str, str] = NOTHING_HELD,
) -> Iterator[Done]:
    """Flip what is silent for longer than its scope's age; yields after each committed batch.

    With `ask_checkpoints`, a row with a resume claim is left while its checkpoint is pending, and
    otherwise its silence counts from the later of its own and its checkpoint's last change. Guards
    always ask them. `held`: scopes in which nothing is flipped now, and why; what is silent there
    is counted, and its sighting noted. Safe to repeat: a flipped row is no longer running.
    """
    places = places_of(ages, stamp.now)
    progress = Progress.begin(database, JOB, [place.scope for place in places], stamp)
    allowance = Allowance(JOB, guards, stamp.run_id)
    works: list[_Range | Judged]
    if _guarded(guards):
        with database.transaction(read_only=True) as tx:
            held = {**held_by_breakers(tx, guards, [place.scope for place in places]), **held}
        works = [Judged(guards, held, progress, allowance)]
    elif ask_checkpoints:
        works = [_Range(), Judged(guards, held, progress, allowance, unclaimed=False)]
    else:
        works = [_Range(claimed_too=True)]
    for work in works:
        yield from work_through(database, work, places, stamp, size, progress)


def held_by_breakers(tx: Transaction, guards: Guards, scopes: Sequence[str]) -> dict[str, str]:
    """The scopes that an open breaker holds."""
    return dict.fromkeys(tripped(tx, JOB, scopes), "breaker") if guards.breakers else {}


def _next_row(
    tx: Transaction, place: _Place, params: Mapping[str, Any]
) -> tuple[str, _Place] | None:
    row = tx.one("flip_candidates", {**params, **_params([place]), "rows_per_scope": 1})
    return None if row is None else (row["handle"], replace(place, after_handle=row["handle"]))


@dataclass(frozen=True, slots=True)
class _Range:
    """Unclaimed rows; with `claimed_too`, where no checkpoint is asked, every silent row."""

    claimed_too: bool = False
    job: str = JOB
    kind: str = "unclaimed"
    waits: bool = True

    def act(
        self,
        tx: Transaction,
        places: list[_Place],
        stamped: dict[str, Any],
        rows_per_scope: int,
        *,
        past_locks: bool,
    ) -> Turn[_Place]:
        statement = f"{JOB}_past_locks" if past_locks else JOB
        params = {
            **stamped,
            **_params(places),
            "rows_per_scope": rows_per_scope,
            "attribution": STALE_RUNNING_REAP_ATTRIBUTION,
            "claimed_too": self.claimed_too,
        }
        rows = {row["scope"]: row for row in tx.rows(statement, params)}
        lost: Left = Counter(
            {(s, "lost_race", None): r["seen"] - r["done"] for s, r in rows.items()}
        )
        journal_left(tx, JOB, stamped, lost)
        flipped = sum(row["done"] for row in rows.values())
        return Turn(
            {("flipped", None): flipped, ("lost_race", None): lost.total()},
            [
                replace(p, after_handle=row["upto_handle"])
                for p in places
                if (row := rows.get(p.scope)) is not None and row["seen"] >= rows_per_scope
            ],
        )

    def next_row(
        self, tx: Transaction, place: _Place, stamped: dict[str, Any]
    ) -> tuple[str, _Place] | None:
        kinds = {"claimed_too": self.claimed_too, "unclaimed": True, "claimed": False}
        return _next_row(tx, place, {**stamped, **kinds})

    def probe(self, tx: Transaction, stamped: dict[str, Any]) -> None:
        self.act(tx, [], stamped, 1, past_locks=False)


@dataclass(frozen=True, slots=True)
class Judged:
    """Rows with a resume claim, which their checkpoints decide about; with guards every row."""

    guards: Guards
    held: Mapping[str, str]
    progress: Progress
    allowance: Allowance
    unclaimed: bool = True
    job: str = JOB
    kind: str = "judged"
    waits: bool = False

    @property
    def _kinds(self) -> dict[str, bool]:
        return {"claimed_too": False, "unclaimed": self.unclaimed, "claimed": True}

    def act(
        self,
        tx: Transaction,
        places: list[_Place],
        stamped: dict[str, Any],
        rows_per_scope: int,
        *,
        past_locks: bool,  # noqa: ARG002 - it never waits
    ) -> Turn[_Place]:
        """Judge up to so many rows of each place, and flip those that nothing holds back."""
        params = {**stamped, **_params(places), **self._kinds, "rows_per_scope": rows_per_scope}
        candidates = tx.rows("flip_candidates", params)
        if not candidates:
            return Turn()
        rows, left = self.allowed(tx, candidates, stamped)
        judgement = Judgement(tx, rows, left)
        done = self.write(judgement, stamped)
        by_kind = judgement.journal_undone(JOB, stamped, done, self.progress.skips)
        changed = {row["scope"]: row["done"] for row in done}
        by_kind["flipped", None] = sum(changed.values())
        last = {row["scope"]: row["handle"] for row in candidates}
        going_on = [replace(p, after_handle=last[p.scope]) for p in places if p.scope in last]
        return Turn(by_kind, going_on, changed)

    @property
    def seen_for_ms(self) -> int:
        """For how long a row must have been seen silent."""
        return self.guards.silent_sighting_ms if self.guards.sightings else 0

    def allowed(
        self, tx: Transaction, candidates: list[DictRow], stamped: dict[str, Any]
    ) -> tuple[list[DictRow], Left]:
        """The candidates that no guard holds back, and how many each of them does."""
        needed = self.seen_for_ms
        # WHY also where flips are held: it is by then that it shows whose writers live.
        ripe, unripe = seen_long_enough(tx, candidates, stamped, lambda _: needed)
        within, left, more = self.within(tx, ripe, unripe)
        trip(tx, JOB, stamped, more, self.allowance.whole)
        return within, left

    def within(
        self, tx: Transaction, ripe: list[DictRow], unripe: list[DictRow]
    ) -> tuple[list[DictRow], Left, Counter[str]]:
        """What of these candidates may be flipped, what not, and what opens a breaker by scope."""
        held = [row for row in (*ripe, *unripe) if row["scope"] in self.held]
        left: Left = Counter((r["scope"], "skipped", self.held[r["scope"]]) for r in held)
        ripe, unripe = self._free(ripe), self._free(unripe)
        left += passed_over(unripe, "sighting")
        ripe, lost = without_lost_checkpoints(tx, ripe, asked=self.guards.plausible_times)
        left += passed_over(lost, "no_checkpoints")
        return self._within_allowance(tx, ripe, left)

    def _free(self, rows: list[DictRow]) -> list[DictRow]:
        return [row for row in rows if row["scope"] not in self.held]

    def _within_allowance(
        self, tx: Transaction, rows: list[DictRow], left: Left
    ) -> tuple[list[DictRow], Left, Counter[str]]:
        """As many of each scope's rows as this run may change; more of them open its breaker."""
        scopes = sorted({row["scope"] for row in rows})
        limits = self.allowance.left(tx, scopes, self.progress.changed)
        met: Counter[str] = Counter()
        within: list[DictRow] = []
        for row in rows:
            scope = row["scope"]
            met[scope] += 1
            if scope not in limits or met[scope] <= limits[scope]:
                within.append(row)
        more = met - Counter(row["scope"] for row in within)
        over = Counter({(s, "skipped", "breaker"): n for s, n in more.items()})
        return within, left + over, more

    def next_row(
        self, tx: Transaction, place: _Place, stamped: dict[str, Any]
    ) -> tuple[str, _Place] | None:
        """The next row that looks silent."""
        return _next_row(tx, place, {**stamped, **self._kinds})

    def write(self, judgement: Judgement, stamped: dict[str, Any]) -> list[DictRow]:
        """Flip what is judged."""
        attribution = {"attribution": STALE_RUNNING_REAP_ATTRIBUTION, "claimed_too": False}
        return judgement.write("flip_judged", {**stamped, **attribution})

    def probe(self, tx: Transaction, stamped: dict[str, Any]) -> None:
        """Find nothing, lock nothing, and write it."""
        params = {**stamped, **_params([]), **self._kinds, "rows_per_scope": 1}
        tx.rows("flip_candidates", params)
        if self.guards.sightings:
            sight(tx, [], stamped)
        self.write(Judgement.of_nothing(tx), stamped)


def preview_flip(
    tx: Transaction,
    ages: Sequence[tuple[str, Milliseconds]],
    now: int,
    guards: Guards = UNGUARDED,
    held: Mapping[str, str] = NOTHING_HELD,
) -> dict[tuple[str, str | None], Backlog]:
    """By scope and cause what would be flipped (None), or passed over, in the snapshot."""
    params = preview_params(tx, ages, now, guards, held)
    rows = tx.rows("preview_flip_stale_running", params)
    found = {(row["scope"], row["cause"]): Backlog(row["rows"], row["oldest_ms"]) for row in rows}
    limits = Allowance(JOB, guards, NO_RUN).left(tx, params["scopes"], {})
    for scope, limit in limits.items():
        backlog = found.get((scope, None), Backlog(0, 0))
        if limit < backlog.rows:
            found[scope, "breaker"] = Backlog(backlog.rows - limit, backlog.oldest_ms)
            found[scope, None] = Backlog(limit, backlog.oldest_ms)
    return {kind: backlog for kind, backlog in found.items() if backlog.rows}


def preview_params(
    tx: Transaction,
    ages: Sequence[tuple[str, Milliseconds]],
    now: int,
    guards: Guards,
    held: Mapping[str, str],
) -> dict[str, Any]:
    """What the fragment flip_found asks for."""
    places = places_of(ages, now)
    scopes = [place.scope for place in places]
    held = {**held_by_breakers(tx, guards, scopes), **held}
    return {
        **_params(places),
        "helds": [held.get(scope) for scope in scopes],
        "seen_for_ms": guards.silent_sighting_ms if guards.sightings else 0,
        "ask_for_any": guards.plausible_times,
        "now": now,
        "claimed_too": False,
    }
