"""What the sample's agents were asked, did and answered: texts only."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Task:
    """One kind of work, with what a row about it would say."""

    agent_type: str
    name: str
    description: str
    steps: tuple[tuple[str, str], ...]  # (tool, what it was used on)
    files: tuple[str, ...]
    output: str


TASKS: tuple[Task, ...] = (
    Task(
        "code-reviewer",
        "review-payments",
        "Review the refund branch for lost updates",
        (("Bash", "git diff main...refunds"), ("Read", "refund.py"), ("Grep", "FOR UPDATE")),
        (),
        "Two findings. The refund total is read before the order is locked, and a retried webhook "
        "inserts a second ledger line. Both have a failing test in the branch.",
    ),
    Task(
        "test-writer",
        "cover-parser",
        "Add tests for the invoice parser's date handling",
        (("Read", "invoices/parse.py"), ("Write", "tests/test_dates.py"), ("Bash", "pytest -q")),
        ("tests/test_dates.py", "invoices/parse.py"),
        "Eleven cases added, one of them fails: 31.04. is read as 1 May instead of being refused.",
    ),
    Task(
        "migrator",
        "split-users-table",
        "Split contact data out of the users table",
        (("Read", "db/schema.sql"), ("Write", "db/0042_contacts.sql"), ("Bash", "make migrate")),
        ("db/0042_contacts.sql", "app/models/user.py", "app/models/contact.py"),
        "The migration takes 14 s on the copy of last night, and both releases pass on it.",
    ),
    Task(
        "researcher",
        "battery-survey",
        "Summarise 2026 results on sodium-ion cathodes",
        (("WebSearch", "sodium-ion cathode cycle life"), ("WebFetch", "survey, section 4")),
        ("notes/sodium-ion.md",),
        "Layered oxides lead on density, polyanionic ones on life. Nine sources, two of them "
        "preprints; the table is in notes/sodium-ion.md.",
    ),
    Task(
        "researcher",
        "folding-baseline",
        "Reproduce the baseline of the folding benchmark",
        (("Bash", "python train.py --config baseline"), ("Read", "runs/0017/metrics.json")),
        ("configs/baseline.toml",),
        "Mean score 0.812 against 0.815 as published; the gap is inside the spread of five seeds.",
    ),
    Task(
        "data-analyst",
        "churn-by-plan",
        "Find out which plan loses customers in their second month",
        (("Bash", "duckdb churn.db"), ("Write", "reports/churn.md")),
        ("reports/churn.md", "reports/churn.csv"),
        "The starter plan: 18 % leave in month two, most of them after the first failed import.",
    ),
    Task(
        "support-triage",
        "inbox-sweep",
        "Sort the support inbox and draft answers",
        (("Read", "inbox/0412.eml"), ("Read", "inbox/0413.eml"), ("Write", "drafts/0412.md")),
        ("drafts/0412.md",),
        "41 messages: 12 duplicates, 9 billing, 20 drafts ready to be read.",
    ),
    Task(
        "translator",
        "release-notes-ja",
        "Translate the release notes into Japanese",
        (("Read", "docs/release-4.2.md"), ("Write", "docs/ja/release-4.2.md")),
        ("docs/ja/release-4.2.md",),
        "4.2 のリリースノートを翻訳しました。用語集にない語は三つです。",
    ),
    Task(
        "dependency-keeper",
        "bump-http-client",
        "Raise the HTTP client to its next major release",
        (("Bash", "uv lock --upgrade"), ("Edit", "app/client.py"), ("Bash", "pytest -q")),
        ("app/client.py", "uv.lock"),
        "Raised, with one change in our code: timeouts are now given per phase.",
    ),
    Task(
        "incident-helper",
        "latency-2026-11",
        "Explain the latency jump of Tuesday night",
        (("Bash", "promtool query range"), ("Read", "deploys.log"), ("Grep", "pool exhausted")),
        (),
        "The jump begins with the deployment of 22:40, which halved the connection pool.",
    ),
    Task(
        "doc-writer",
        "quickstart",
        "Rewrite the quick start so that it works on a clean machine",
        (("Read", "README.md"), ("Bash", "docker run --rm -it debian"), ("Edit", "README.md")),
        ("README.md",),
        "Five steps became three. Followed on a clean Debian 13: four minutes.",
    ),
    Task(
        "vision-labeller",
        "label-batch",
        "Label the night images of the northern cameras",
        (("Bash", "ls frames/north | wc -l"), ("Read", "frames/north/000812.jpg")),
        ("labels/north.jsonl",),
        "1,204 frames labelled, 37 left for a person because of glare.",
    ),
)

MODELS: tuple[str, ...] = ("atlas-large-2", "atlas-mini-2", "quill-coder-1", "")


@dataclass(frozen=True, slots=True)
class Failure:
    """What a failed row says about its end."""

    error: str
    code: str
    kind: str
    retryable: bool
    retry_after_ms: int | None = None


FAILURES: tuple[Failure, ...] = (
    Failure(
        "the model endpoint was overloaded three times",
        "overloaded",
        "network",
        retryable=True,
        retry_after_ms=30_000,
    ),
    Failure(
        "the context window was full before the last step", "context_full", "limit", retryable=False
    ),
    Failure("the command was killed: out of memory", "tool_killed", "tool", retryable=False),
    Failure("the connection to the sandbox was reset", "sandbox_reset", "network", retryable=True),
    Failure("the budget of 2.00 USD was used up", "budget_spent", "limit", retryable=False),
)

STOPPED_BY: tuple[str, ...] = ("user", "parent", "budget", "shutdown")

QUESTIONS: tuple[tuple[str, str], ...] = (
    ("Bash", "May I run `make migrate` against staging?"),
    ("Bash", "May I push the branch `refunds`?"),
    ("WebFetch", "May I read pages of example.org?"),
    ("Write", "May I overwrite docs/release-4.2.md?"),
    ("SendMail", "May I send the twenty drafts?"),
)
