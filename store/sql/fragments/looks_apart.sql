-- How far apart two looks of reconcile_parked may be for one sighting to go on, in milliseconds.
greatest(
    300000,
    3 * coalesce(
        (select l.period_ms from maintenance.schedule l where l.job = 'reconcile_parked'), 0
    )
)
