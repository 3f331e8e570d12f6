"""How the tests of the sample read it: independently of how it was made."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from config.policy import load_policy
from worker.sample.generator import EXAMPLE_NOW_MS, EXAMPLE_SEED, sample_ledger
from worker.sample.members import Json

ROOT = Path(__file__).parents[3]
POLICY_FILE = ROOT / "worker" / "sample" / "policy.toml"
POLICY = load_policy(POLICY_FILE)
LEDGER = sample_ledger(EXAMPLE_SEED, EXAMPLE_NOW_MS)
PARKED, RUNNING = "parked", "running"
TERMINAL = {"completed", "failed", "killed"}


@dataclass(frozen=True)
class Case:
    """An agent, the checkpoint of its own scope that it names, and how old the two are."""

    agent: Json
    checkpoint: Json | None
    silent_ms: int
    answered_ms: int  # since the checkpoint's last change of status; 0 if it does not say
    lease_ms: int
    at_ms: int
    elsewhere: bool  # another scope has a checkpoint of this token

    @property
    def state(self) -> str:
        """As reconciliation reads the checkpoint: a pending one whose time is over is expired."""
        if self.checkpoint is None:
            return "missing"
        expires_at = self.checkpoint["expiresAt"]
        if self.checkpoint["status"] == "pending" and expires_at is not None:
            return "expired" if expires_at <= self.at_ms else "pending"
        if self.checkpoint["status"] == "resolved" and self.checkpoint["updatedAt"] is None:
            return "undated"
        return str(self.checkpoint["status"])

    @property
    def past_lease(self) -> bool:
        """A checkpoint that was answered counts from the later of the two."""
        if self.state == "resolved":
            return min(self.silent_ms, self.answered_ms) > self.lease_ms
        return self.silent_ms > self.lease_ms

    @property
    def shape(self) -> tuple[str, bool, bool]:
        """Status, whether it names a checkpoint, whether it carries a claim."""
        return (
            self.agent["status"],
            "parkedCheckpointToken" in self.agent,
            "parkClaimId" in self.agent,
        )


def ended(agent: Json) -> bool:
    return agent["status"] in TERMINAL


def milliseconds(span: timedelta | None) -> int:
    assert span is not None
    return span // timedelta(milliseconds=1)


def cases_at(at_ms: int) -> list[Case]:
    """Read the sample as it stands when the clock shows `at_ms`."""
    by_key = {(line["scope"], line["token"]): line for line in LEDGER.checkpoints}
    tokens = {line["token"] for line in LEDGER.checkpoints}
    cases = []
    for agent in LEDGER.agents:
        token = agent.get("parkedCheckpointToken")
        checkpoint = by_key.get((agent["scope"], token))
        answered_at = checkpoint["updatedAt"] if checkpoint else None
        cases.append(
            Case(
                agent=agent,
                checkpoint=checkpoint,
                silent_ms=at_ms - agent["updatedAt"],
                answered_ms=0 if answered_at is None else at_ms - answered_at,
                lease_ms=milliseconds(POLICY.for_scope(agent["scope"]).stale_claim_max_age),
                at_ms=at_ms,
                elsewhere=checkpoint is None and token in tokens,
            )
        )
    return cases


def key(agent: Json) -> tuple[str, str]:
    return agent["scope"], agent["handle"]
