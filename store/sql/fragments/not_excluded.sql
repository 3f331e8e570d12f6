a.writer_id <> all (%(exclude_writer_ids)s::text[])
and a.handle <> all (%(exclude_handles)s::text[])
