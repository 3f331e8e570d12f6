"""docs/configuration.md is what the code makes of its models."""

from deploy.configuration import FILE, document


def test_what_is_committed_is_what_the_code_makes() -> None:
    """`make docs` writes it anew; it fails for a key or a variable that nobody explains."""
    assert FILE.read_text(encoding="utf-8") == document()
