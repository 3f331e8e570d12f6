"""One statement per file; `fragments/` holds what several statements share."""
