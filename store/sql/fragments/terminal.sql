a.status in ('completed', 'failed', 'killed')
