"""The jobs: one file each, all of one shape, none of which knows Celery."""
