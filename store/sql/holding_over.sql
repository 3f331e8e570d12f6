-- What a job was held for is gone: it may be held for it anew.
delete from maintenance.breakers b
where b.job = %(job)s and b.scope = '' and b.reason = any (%(reasons)s::text[])
