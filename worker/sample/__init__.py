"""Made-up ledgers: a small one to look at, and big ones to measure with.

`generator` makes the sample that a newcomer meets: `approvals` says which parked and claimed rows
it must show, `members` and `wording` fill the rows in, and `policy.toml` is the short policy they
are aged for. `bulk` streams rows by the million straight into COPY, dealt out by `cycle`. Nothing
here reads a clock but `__main__`, which takes the time of day when it is given none.
"""
