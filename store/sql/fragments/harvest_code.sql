-- The code of rejection h if it is one, else null. WHY "C": elsewhere a-z may hold other letters.
case when h.code collate "C" ~ '^[a-z][a-z0-9_]{0,63}$' and h.code <> 'other' then h.code end
