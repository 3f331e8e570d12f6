"""What the model test draws: records, checkpoints, policies and expectations of a small world."""

from random import Random
from typing import Any

from hypothesis import strategies as st

from store.records import Status
from store.retention import RetentionPolicy

# WHY so few of everything: rows meet each other, and times meet limits, all the time.
SCOPES = ("s", "t")
HANDLES = ("a", "b", "B", "c", "é")
TOKENS = ("T1", "T2", "T3")
SESSION_IDS = ("x", "y", "z")
WANTED: tuple[Status | None, ...] = (None, "running", "failed")
scopes = st.sampled_from(SCOPES)
handles = st.sampled_from(HANDLES)
tokens = st.sampled_from(TOKENS)
session_ids = st.sampled_from(SESSION_IDS)
writers = st.sampled_from(["host-a", "host-b"])
statuses = st.sampled_from(["running", "parked", "completed", "failed", "killed"])
times = st.integers(0, 60)
ages = st.none() | st.integers(0, 20) | st.integers(0, 20) | st.sampled_from([0.5, 19.5, 2.0**80])

_TEXTS = st.sampled_from([None, "", "its own words", "naïve ✓"])
_WORDS = st.text(max_size=3).filter(str.isprintable)
_OPTIONAL: dict[str, st.SearchStrategy[Any]] = {
    "sessionId": session_ids,
    "parentSessionId": st.sampled_from(["x", "parent"]),
    "rootSessionId": st.sampled_from(["y", "root"]),
    "name": _TEXTS,
    "writerEpoch": st.integers(0, 3),
    "settledAt": times | st.none(),
    "stoppedBy": _TEXTS,
    "parkedCheckpointToken": tokens | st.none(),
    "parkedAt": times,
    "parkClaimId": st.sampled_from([None, "", "claim", "next"]),
    "summary": _TEXTS,
    "error": _TEXTS,
    "usage": st.sampled_from([{}, {"totalTokens": 7, "costMicroUsd": 1.5}, None]),
    "admittedOrgWriteScope": st.none(),
    "futureMember": st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | _WORDS,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXTS.filter(bool), inner),
        max_leaves=3,
    ),
}
# What waits for an approval: parked, reserved for a resume, or on its way back.
_WAITING = st.fixed_dictionaries(
    {"status": st.sampled_from(["parked", "running"]), "parkedCheckpointToken": tokens},
    optional={"parkClaimId": st.just("claim")},
)
_members = st.fixed_dictionaries(
    {
        "owner": st.sampled_from(["x", "task"]),
        "sessionScoped": st.booleans(),
        "writerId": writers,
        "spawnedAt": times,
        "updatedAt": times,
        "status": statuses,
        "rev": st.integers(0, 3),
    },
    optional=_OPTIONAL,
)
members = st.builds(lambda drawn, waiting: drawn | waiting, _members, st.just({}) | _WAITING)
approvals = st.fixed_dictionaries(
    {
        "status": st.sampled_from(["pending", "pending", "resolved", "expired"]),
        "expires_at": st.none() | st.integers(20, 90),
        "updated_at": st.none() | times,
    }
)
others = st.sampled_from([None, None, None, *HANDLES])
off_by = st.sampled_from([0, 0, 0, 1, -1])
limits = st.none() | st.integers(0, 3)
policies = st.builds(
    RetentionPolicy,
    max_age_ms=ages,
    keep=st.none() | st.integers(0, 4) | st.just(2.0),
    stale_running_max_age_ms=ages,
)
malformed = st.sampled_from(
    [
        RetentionPolicy(max_age_ms=float("nan")),
        RetentionPolicy(max_age_ms=0, keep=5.5),
        RetentionPolicy(keep=True),
        RetentionPolicy(max_age_ms=0, keep=0, stale_running_max_age_ms=-1),
        RetentionPolicy(max_age_ms=float("inf"), keep=0),
    ]
)
# What an update expects; `rev` is how far from the right one.
expected = st.fixed_dictionaries(
    {"rev": off_by},
    optional={
        "status": statuses,
        "parked_checkpoint_token": tokens | st.none(),
        "park_claim_id": st.sampled_from([None, "", "claim"]),
    },
)


def first_row(chance: Random) -> dict[str, Any]:
    """A row in one of the shapes that the jobs act on."""
    token = {"parkedCheckpointToken": chance.choice(TOKENS)}
    claim = {"parkClaimId": "claim"}
    shape: dict[str, Any] = chance.choice(
        [
            {"status": "completed", "settledAt": chance.randrange(40), "sessionId": "x"},
            {"status": "killed", "summary": "", "futureMember": [None]},
            {"status": "running", "error": None},
            {"status": "running", "writerEpoch": 2, **token, **claim},
            {"status": "parked", "parkedAt": chance.randrange(40), **token},
            {"status": "parked", **token, **claim},
        ]
    )
    return {
        "owner": "x",
        "sessionScoped": True,
        "writerId": chance.choice(["host-a", "host-b"]),
        "spawnedAt": chance.randrange(40),
        "updatedAt": chance.randrange(40),
        "rev": 1,
        **shape,
    }


def first_approval(chance: Random) -> dict[str, Any]:
    return {
        "status": chance.choice(["pending", "pending", "resolved", "expired"]),
        "expires_at": chance.choice([None, chance.randrange(20, 90)]),
        "updated_at": chance.choice([None, chance.randrange(40)]),
    }
