"""What is left of a message once it was judged: our own headers and arguments, or nothing."""

import json
from typing import Any
from uuid import UUID

import pytest
from celery.exceptions import InvalidTaskError
from kombu.message import Message

from worker.envelope import ARGUMENTS, BODY_MAX_BYTES, PART, POLL, TICK, admit


def message(
    body: object = None, *, task: object = TICK, raw: str | bytes | None = None, **members: Any
) -> Message:
    """A message as a broker hands it over."""
    content = [[], {"job": "reap"}, {}] if body is None else body
    given: dict[str, Any] = {
        "body": json.dumps(content) if raw is None else raw,
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "headers": {"task": task, "id": "given", "lang": "py", **members.pop("headers", {})},
        "properties": {"delivery_tag": "7", "reply_to": "me", "correlation_id": "1"},
        **members,
    }
    return Message(**given)


def refusal(given: Message) -> str:
    with pytest.raises(InvalidTaskError) as refused:
        admit(given)
    return str(refused.value)


def test_nothing_of_a_message_is_left_but_what_is_ours() -> None:
    """Whatever Celery would act on: callbacks, times, tries, names for the log, where to answer."""
    given = message(
        [[1, 2], {"job": "reap", "more": 1}, {"callbacks": [{}], "chain": [{}], "chord": {}}],
        headers={
            "shadow": "x",
            "timelimit": [0.1, 0.1],
            "retries": 9,
            "eta": None,
            "stamps": {},
            "root_id": "r",
            "group": "g",
            "expires": "2030-01-01T00:00:00",
        },
    )

    admit(given)

    assert UUID(given.headers.pop("id")).version == 4
    assert given.headers == {
        "lang": "py",
        "task": TICK,
        "retries": 0,
        "expires": "2030-01-01T00:00:00+00:00",
    }
    assert given.payload == [[], {"job": "reap"}, {}]
    assert given.properties == {"delivery_tag": "7"}


def test_two_of_one_id_are_two() -> None:
    first, second = message(), message()

    admit(first)
    admit(second)

    assert first.headers["id"] != second.headers["id"]


def test_what_was_read_before_is_read_anew() -> None:
    given = message([[], {"job": "reap"}, {"chain": [1]}])
    assert given.payload[2] == {"chain": [1]}

    admit(given)

    assert given.payload == [[], {"job": "reap"}, {}]


def test_message_without_arguments() -> None:
    given = message([[], {"request_id": "x"}, None], task=POLL)

    admit(given)

    assert given.payload == [[], {}, {}]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (message(task=None), "no message None"),
        (message(task=["a"]), "no message ['a']"),
        (message(task="celery.chord"), "no message 'celery.chord'"),
        (message(headers={"eta": "2999-01-01T00:00:00"}), "later"),
        (message(headers={"expires": 5}), "no time"),
        (message(headers={"expires": "0001-01-01T00:00:00+14:00"}), "no time"),
        (message(content_type="application/x-python-serialize"), "not JSON"),
        (message(content_type=None), "not JSON"),
        (message(content_encoding="binary"), "encoding"),
        (message(content_encoding=["a"]), "encoding"),
        (message(raw=" " * BODY_MAX_BYTES + "[[], {}, {}]"), "over"),
        (message(raw="[" * BODY_MAX_BYTES), "no JSON"),
        (message(raw=b"\xff\xfe\x00"), "no JSON"),
        (message(raw="9" * 10_000), "no JSON"),
        (message({}), "not a list"),
        (message([[], {}]), "not a list"),
        (message([{}, [], {}]), "not a list"),
        (message([[], {"job": ["reap"]}, {}]), "a job that can be none"),
        (message([[], {"job": {"a": 1}}, {}]), "a job that can be none"),
        (message([[], {"job": "x" * 201}, {}]), "a job that can be none"),
        (message([[], {"part": 2**63}, {}], task=PART), "a part that can be none"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_message_that_is_none_of_ours_is_refused_in_a_few_words(given: Message, said: str) -> None:
    problem = refusal(given)

    assert said in problem
    assert len(problem) < 300


def test_there_are_four_messages_and_none_names_a_scope_or_a_policy() -> None:
    assert set(ARGUMENTS) == {
        "maintenance.tick",
        "maintenance.part",
        "maintenance.request",
        "maintenance.requests",
    }
    assert {each for names in ARGUMENTS.values() for each in names} == {
        "job",
        "run_id",
        "part",
        "request_id",
    }
