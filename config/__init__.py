"""What an operator may decide: the settings of the process and the retention policy.

`settings` is the only reader of the worker's own variables (`variables` says what each may hold),
`server` reads those it shares with the agent server, and `policy` reads the policy file (through
`toml_table`, with `globs` for its patterns). `durations` and `addresses` say how those are
written, and `errors` holds what is raised when they are not. Importing this package alone loads
none of them.
"""
