-- Terminal rows that an arm p may take, with or without a settling time.
(
    ({settled_beyond} and a.settled_at >= p.first_at)
    or ({unsettled_beyond} and a.updated_at >= p.first_at)
)
