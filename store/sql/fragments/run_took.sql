-- How long the run r took, as it is counted: 1 in the bucket of its duration, by upper bound in
-- milliseconds, and the milliseconds themselves. A clock that was set back makes no duration negative.
lateral (
    values
        (
            'took',
            coalesce(
                (%(bounds_ms)s::bigint[])[
                    1 + width_bucket(r.finished_at - r.started_at - 1, %(bounds_ms)s::bigint[])
                ]::text,
                'more'
            ),
            1::bigint
        ),
        ('took_ms', '', greatest(r.finished_at - r.started_at, 0))
) as took (arm, cause, count)
