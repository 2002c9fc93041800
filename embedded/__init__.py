"""The embedded default: PostgreSQL, Redis, web and worker of one machine, run by `manage.py up`."""
