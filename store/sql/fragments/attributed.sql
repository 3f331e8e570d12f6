-- The content with the attribution where nobody said anything; an empty string is a saying.
a.content
    || case when a.content ->> 'error' is null
        then jsonb_build_object('error', %(attribution)s::text) else '{}'::jsonb end
    || case when a.content ->> 'summary' is null
        then jsonb_build_object('summary', %(attribution)s::text) else '{}'::jsonb end
