"""The schema of the worker's own tables, step by step."""
