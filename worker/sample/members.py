"""Who a sample agent is, what it did and how it ended: everything but its status and times."""

from random import Random
from typing import Any

from worker.sample.wording import FAILURES, MODELS, STOPPED_BY, TASKS

Json = dict[str, Any]


def hex_id(rng: Random, digits: int) -> str:
    """Draw an identifier of so many hexadecimal digits."""
    return f"{rng.getrandbits(4 * digits):0{digits}x}"


def describe(rng: Random, scope: str, row: Json) -> Json:
    """Complete a row that has its status and times, in place, and return it."""
    task = rng.choice(TASKS)
    updated_at: int = row["updatedAt"]
    ended_at: int = row.get("settledAt", updated_at)
    ran_ms = rng.randrange(20_000, 5_400_000)
    row |= {
        "handle": f"a{hex_id(rng, 10)}",
        "scope": scope,
        "owner": f"task_{hex_id(rng, 8)}",
        "sessionScoped": False,
        "name": f"{task.name}-{rng.randrange(2, 40)}" if rng.randrange(8) else "",
        "agentType": task.agent_type,
        "writerId": f"{scope.split('/', maxsplit=1)[0]}-host-{rng.randrange(3)}",
        "spawnedAt": row.get("parkedAt", ended_at) - ran_ms,
        "rev": rng.randrange(2, 60),
    }
    optional: Json = {
        "description": task.description,
        "model": rng.choice(MODELS),
        "sessionId": f"sess_{hex_id(rng, 12)}",
        "writerEpoch": rng.randrange(5),  # absent: a row from before there were epochs
        "seq": rng.randrange(1, 9),
    }
    row |= {member: value for member, value in optional.items() if rng.randrange(7)}
    row["recentSteps"] = [
        {"tool": tool, "on": on, "at": ended_at - 4_000 * (len(task.steps) - place)}
        for place, (tool, on) in enumerate(task.steps)
    ]
    row["usage"] = {
        "totalTokens": rng.randrange(4_000, 400_000),
        "toolUses": rng.randrange(1, 90),
        "durationMs": ran_ms,
        "turns": rng.randrange(1, 40),
        "costMicroUsd": rng.randrange(900, 1_900_000),
    }
    if task.files:
        row["editedFiles"] = [
            {"path": path, "added": rng.randrange(1, 200), "removed": rng.randrange(90)}
            for path in task.files
        ]
    _ending(rng, row, task.output)
    _extras(rng, row)
    return row


def _ending(rng: Random, row: Json, output: str) -> None:
    """Add what a finished row says about its end."""
    first_sentence = output.split(". ", maxsplit=1)[0]
    if row["status"] in {"completed", "failed", "killed"}:
        row["completionId"] = f"done_{hex_id(rng, 10)}"
    if row["status"] == "completed":
        row |= {"summary": first_sentence, "finalOutput": output}
        if rng.randrange(5) == 0:
            row["finalOutputFull"] = f"{output}\n\n(The whole log is attached to the session.)"
    elif row["status"] == "failed":
        failure = rng.choice(FAILURES)
        row |= {"error": failure.error, "errorCode": failure.code, "errorKind": failure.kind}
        row["errorRetryable"] = failure.retryable
        if failure.retry_after_ms is not None:
            row["errorRetryAfterMs"] = failure.retry_after_ms
        if rng.randrange(3) == 0:
            row |= {"finalOutput": first_sentence, "resultIsPartial": True}
    elif row["status"] == "killed":
        row |= {"stoppedBy": rng.choice(STOPPED_BY), "summary": "stopped", "finalOutput": ""}
    else:
        # WHY: a verdict fills these where absent or null, and leaves an empty text as it is.
        row |= rng.choice(({}, {}, {"error": None}, {"error": ""}, {"summary": ""}))


def _extras(rng: Random, row: Json) -> None:
    """Add what only some servers write, members no release of the worker knows among it."""
    if rng.randrange(3) == 0:
        row["admittedOrgScopes"] = rng.choice(([], ["org/research"], ["org/research", "org/ops"]))
        row["admittedOrgWriteScope"] = rng.choice((None, "org/research"))
    if rng.randrange(4) == 0:
        row["x-trace"] = {
            "traceparent": f"00-{hex_id(rng, 32)}-{hex_id(rng, 16)}-01",
            "sampled": bool(rng.randrange(2)),
            "baggage": None,
        }
    if rng.randrange(10) == 0:
        row |= {"labels": [], "costCentre": "", "priority": 0.5}
