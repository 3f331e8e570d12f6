-- For how many milliseconds the row a could have been reconciled; 0 where nobody can know.
-- WHY numeric: a row may name any time, and no two of them need differ by what a bigint holds.
least(greatest(
    case
        when c.token is null and a.status = 'parked' then 0
        when c.status = 'expired' or c.expires_at <= %(now)s
            then case
                when a.status = 'running' then p.leased_since - a.updated_at::numeric
                when c.status = 'pending' then %(now)s - c.expires_at::numeric
                else %(now)s - coalesce(least(c.expires_at, c.updated_at), %(now)s)::numeric
            end
        when c.status = 'resolved'
            then p.leased_since - greatest(a.updated_at, c.updated_at)::numeric
        else p.leased_since - a.updated_at::numeric
    end,
    0
), 9223372036854775807)::bigint
