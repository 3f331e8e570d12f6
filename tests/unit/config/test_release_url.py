"""Which template can name a transcript to delete, and what is said of one that cannot."""

import pytest

from config.addresses import release_url_problem


@pytest.mark.parametrize(
    "template",
    [
        "https://agents.example/scopes/{scope}/sessions/{session_id}",
        "HTTP://10.0.0.1:8080/{session_id}/of/{scope}",
        "http://[::1]:80/x%20y?scope={scope}&session={session_id}",
        "http://h?{scope}&{session_id}",
        "http://h/{scope}/{scope}:{session_id};v=1",
    ],
)
def test_a_template_with_a_place_for_each(template: str) -> None:
    assert release_url_problem(template) is None


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("ftp://h/{scope}/{session_id}", "does not begin with http:// or https://"),
        ("h/{scope}/{session_id}", "does not begin with http:// or https://"),
        ("https:/h/{scope}/{session_id}", "does not begin with http:// or https://"),
        ("https://h/{scope}", "has no {session_id} in its path or query"),
        ("https://h/{session_id}", "has no {scope} in its path or query"),
        ("https://h/{scope}#{session_id}", "has no {session_id} in its path or query"),
        ("https://{scope}.h/{session_id}", "has no {scope} in its path or query"),
        ("https://u:s3cret@h/{scope}/{session_id}", "holds a user or a password"),
        ("https://s3cret@h/{scope}/{session_id}", "holds a user or a password"),
        ("https://{scope}.h/{scope}/{session_id}", "cannot be split"),
        ("https:///{scope}/{session_id}", "cannot be split"),
        ("https://h:0/{scope}/{session_id}", "cannot be split"),
        ("https://h:99999/{scope}/{session_id}", "cannot be split"),
        ("https://[::1/{scope}/{session_id}", "cannot be split"),
        ("https://h/{scope}/{session_id}#top", "cannot be split"),
        ("https://h/{scope}/{handle}/{session_id}", "cannot be split"),
        ("https://h/{ scope}/{scope}/{session_id}", "cannot be split"),
        ("https://h/ä/{scope}/{session_id}", "cannot be split"),
        ("https://h/a b/{scope}/{session_id}", "cannot be split"),
        ("https://h/\t{scope}/{session_id}", "cannot be split"),
        ("https://h/%zz/{scope}/{session_id}", "has a % without two hexadecimal digits"),
        ("https://h/a/../{scope}/{session_id}", "has . or .. in its path"),
        ("https://h/%2e%2e/{scope}/{session_id}", "has . or .. in its path"),
        # A scope "a" with a session "b-c" would be the same transcript as "a-b" with "c".
        ("https://h/{scope}-{session_id}", "has nothing between its places"),
        ("https://h/{scope}{session_id}", "has nothing between its places"),
        ("https://h/{scope}%2F{session_id}", "has nothing between its places"),
    ],
)
def test_any_other_is_refused_and_never_quoted(template: str, said: str) -> None:
    problem = release_url_problem(template)

    assert problem is not None
    assert problem.startswith(said)
    assert "; " in problem
    assert "s3cret" not in problem
