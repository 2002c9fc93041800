"""The embedded default: PostgreSQL, Redis, web, worker and beat of one machine, run by `manage.py up`."""
