-- When holds are judged, in milliseconds: as the statement is told, so that several of one batch
-- judge alike; null: by the database's clock. Nobody who says what time it is ends a hold by it.
coalesce(%(held_at)s::bigint, (extract(epoch from statement_timestamp()) * 1000)::bigint)
