"""The sample ledger: the committed file, repeatability, and what holds for all of its lines."""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from typing import Any

import pytest

from tests.unit.worker.sample_reading import LEDGER, POLICY_FILE, ROOT, key
from worker.sample.generator import EXAMPLE_NOW_MS, EXAMPLE_SEED, json_lines, sample_ledger

LEDGER_FILE = ROOT / "examples" / "ledger.jsonl"
REQUIRED: dict[str, type] = {
    "handle": str,
    "scope": str,
    "owner": str,
    "sessionScoped": bool,
    "writerId": str,
    "spawnedAt": int,
    "updatedAt": int,
    "status": str,
    "rev": int,
}


def run_module(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "worker.sample", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        timeout=60,
        check=False,
    )


class TestTheCommittedFile:
    def test_is_what_the_generator_makes(self) -> None:
        made = "".join(f"{line}\n" for line in json_lines(LEDGER))

        assert LEDGER_FILE.read_text(encoding="utf-8") == made

    def test_is_what_the_command_in_its_readme_writes(self) -> None:
        """Also where the terminal could not show all of it."""
        readme = (LEDGER_FILE.parent / "README.md").read_text(encoding="utf-8")
        command = re.search(
            r"python -m worker\.sample (--seed .*) > examples/ledger\.jsonl", readme
        )
        assert command is not None

        done = run_module(*command[1].split(), PYTHONIOENCODING="ascii")

        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout == LEDGER_FILE.read_bytes()

    def test_has_its_policy_beside_it(self) -> None:
        beside = LEDGER_FILE.parent / "policy.toml"

        assert beside.resolve() == POLICY_FILE.resolve()

    def test_holds_each_checkpoint_and_transcript_before_the_first_agent(self) -> None:
        kinds = []
        for line in LEDGER_FILE.read_text(encoding="utf-8").splitlines():
            members = set(json.loads(line))
            kinds.append(members.pop() if len(members) == 1 else "agent")

        runs = [kind for kind, before in zip(kinds, ["", *kinds], strict=False) if kind != before]
        assert runs == ["checkpoint", "session", "agent"]


class TestTheSameAgain:
    def test_same_seed_and_time_make_the_same_lines(self) -> None:
        again = sample_ledger(EXAMPLE_SEED, EXAMPLE_NOW_MS)

        assert list(json_lines(again)) == list(json_lines(LEDGER))

    def test_another_seed_makes_other_agents(self) -> None:
        other = sample_ledger(EXAMPLE_SEED + 1, EXAMPLE_NOW_MS)

        handles = {agent["handle"] for agent in LEDGER.agents}
        assert handles.isdisjoint(agent["handle"] for agent in other.agents)

    def test_another_time_moves_every_time_by_as_much_and_nothing_else(self) -> None:
        later = sample_ledger(EXAMPLE_SEED, EXAMPLE_NOW_MS + 86_400_000)

        def moved(value: Any, member: str = "") -> Any:
            if isinstance(value, dict):
                return {name: moved(part, name) for name, part in value.items()}
            if isinstance(value, list):
                return [moved(part) for part in value]
            is_time = isinstance(value, int) and (member == "at" or member.endswith("At"))
            return value + 86_400_000 if is_time else value

        assert later.agents == moved(LEDGER.agents)
        assert later.checkpoints == moved(LEDGER.checkpoints)
        assert later.sessions == moved(LEDGER.sessions)

    def test_without_a_time_the_rows_are_as_of_now(self) -> None:
        before_ms = time.time_ns() // 1_000_000
        lines = run_module("--seed", "7").stdout.splitlines()
        after_ms = time.time_ns() // 1_000_000

        # A checkpoint's line comes first, and its every time is so far from now as in this one.
        as_of_zero = sample_ledger(7, 0).checkpoints[0]["askedAt"]
        made_for_ms = json.loads(lines[0])["checkpoint"]["askedAt"] - as_of_zero
        assert before_ms <= made_for_ms <= after_ms


@pytest.mark.parametrize("seed", [0, 1, 2, EXAMPLE_SEED])
def test_no_key_occurs_twice(seed: int) -> None:
    made = sample_ledger(seed, EXAMPLE_NOW_MS)

    keys = [("agent", *key(agent)) for agent in made.agents]
    keys += [("checkpoint", line["scope"], line["token"]) for line in made.checkpoints]
    keys += [("session", line["scope"], line["sessionId"]) for line in made.sessions]
    assert [one for one, count in Counter(keys).items() if count > 1] == []


def test_every_agent_has_the_members_a_record_must_have() -> None:
    wrong = [
        (key(agent), member)
        for agent in LEDGER.agents
        for member, kind in REQUIRED.items()
        if type(agent.get(member)) is not kind or agent[member] == ""
    ]

    assert wrong == []
    assert len(LEDGER.agents) == 400


def test_times_are_in_order_and_past() -> None:
    """Began, then settled, then (perhaps) written again; never later than the ledger itself."""
    for agent in LEDGER.agents:
        settled_at = agent.get("settledAt", agent["updatedAt"])
        assert agent["spawnedAt"] < settled_at <= agent["updatedAt"] <= EXAMPLE_NOW_MS, key(agent)
        assert agent["spawnedAt"] < agent.get("parkedAt", settled_at) <= agent["updatedAt"]
    assert max(line["updatedAt"] for line in LEDGER.sessions) <= EXAMPLE_NOW_MS
