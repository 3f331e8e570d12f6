"""How a request names its transcript, and what an answer to it means."""

from datetime import timedelta
from email.message import Message
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.release_elsewhere import Answer
from worker.release_http import Unaddressable, answer_to, retry_after, target_of

# Tue, 01 Dec 2026 00:00:00 GMT
NOW = 1_796_083_200.0
TEMPLATE = "https://h:8443/v1/{scope}/sessions/{session_id}"
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


def headers(**given: str) -> Message:
    message = Message()
    for name, value in given.items():
        message[name.replace("_", "-")] = value
    return message


def said(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


@given(NAMES, NAMES, st.sampled_from([TEMPLATE, "http://h/x?a={scope}&b={session_id}"]))
def test_a_target_names_one_transcript_or_there_is_none(
    scope: str, session: str, template: str
) -> None:
    """Whatever the names hold, the server finds them where the template has their places."""
    try:
        target = target_of(template, scope, session)
    except Unaddressable:
        parts = scope.replace("\\", "/").split("/") + session.replace("\\", "/").split("/")
        assert not scope or not session or {".", ".."} & set(parts)
        return

    assert target.isascii()
    url = urlsplit(f"http://h{target}")
    if template == TEMPLATE:
        _, version, *middle, last = url.path.split("/")
        assert (version, url.query) == ("v1", "")
        assert [unquote(each) for each in (*middle, last)] == [scope, "sessions", session]
    else:
        first, second = url.query.split("&")
        assert url.path == "/x"
        assert (unquote(first), unquote(second)) == (f"a={scope}", f"b={session}")


def test_a_name_that_looks_like_a_place_is_not_taken_for_one() -> None:
    assert target_of(TEMPLATE, "{session_id}", "{scope}") == (
        "/v1/%7Bsession_id%7D/sessions/%7Bscope%7D"
    )


def test_a_template_without_a_path_asks_for_the_root() -> None:
    assert target_of("http://h?{scope}&{session_id}", "a", "b") == "/?a&b"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", None),
        ("1", 1),
        (" 120 ", 120),
        ("86400", 86_400),
        ("86401", 86_400),
        ("9" * 4000, 86_400),
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("Tue, 01 Dec 2026 00:02:00 GMT", 120),
        ("Tue, 01 Dec 2026 01:02:00 +0100", 120),
        ("Tuesday, 01-Dec-26 00:02:00 GMT", 120),
        ("Tue Dec  1 00:02:00 2026", 120),
        ("Mon, 30 Nov 2026 23:59:59 GMT", None),
        ("Tue, 01 Dec 2099 00:00:00 GMT", 86_400),
        ("Tue, 99 Dec 2026 00:00:00 GMT", None),
    ],
)
def test_retry_after_in_seconds_or_as_a_date(value: str, seconds: float | None) -> None:
    assert retry_after(headers(Retry_After=value), lambda: NOW) == said(seconds)


def test_without_retry_after_nothing_was_asked() -> None:
    assert retry_after(headers(), lambda: NOW) is None


def test_a_date_counts_by_the_clock_of_who_gave_it() -> None:
    """Ours is an hour behind: that is no hour more to wait."""
    given = headers(
        Date="Tue, 01 Dec 2026 01:00:00 GMT", Retry_After="Tue, 01 Dec 2026 01:00:30 GMT"
    )

    assert retry_after(given, lambda: NOW) == timedelta(seconds=30)


@pytest.mark.parametrize(
    ("status", "verdict", "away"),
    [
        (100, "failed", False),
        (199, "failed", False),
        (200, "released", False),
        (299, "released", False),
        (300, "failed", False),
        (399, "failed", False),
        (400, "failed", False),
        (401, "put_back", False),
        (403, "put_back", False),
        (404, "absent", False),
        (405, "failed", False),
        (408, "failed", False),
        (410, "absent", False),
        (429, "failed", True),
        (500, "failed", False),
        (501, "failed", False),
        (502, "failed", True),
        (503, "failed", True),
        (504, "failed", True),
        (999, "failed", False),
    ],
)
def test_each_status_has_one_meaning(status: int, verdict: str, away: bool) -> None:
    answer = answer_to(status, headers(Retry_After="7"), lambda: NOW)

    assert (answer.verdict, answer.away) == (verdict, away)
    assert (answer.error is None) == (verdict in {"released", "absent"})
    assert answer.wait == (timedelta(seconds=7) if verdict == "failed" else None)
    assert answer.final == Answer("failed").final
