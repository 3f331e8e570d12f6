-- For how long the verdict v over the row a must have been seen before it is acted on.
case
    when v.verdict = 'undated_checkpoint' then 0
    else greatest(
        case when v.verdict = 'checkpoint_missing' then %(missing_ms)s::bigint else 0 end,
        case
            when a.writer_id = any (%(living)s::text[]) then %(living_ms)s::bigint else 0
        end
    )
end
