"""Tells of what people did before in which pool it was: for jobs, where they are now."""

from django.db import migrations

_JOBS = """
UPDATE events_event AS event SET pools = ARRAY[job.pool_id]::bigint[] FROM jobs_job AS job
WHERE event.kind IN ('job', 'experiment', 'command') AND event.job_id = job.id AND event.actor ~ '^(user|account):'
"""
_HOSTS = """
UPDATE events_event AS event SET pools = ARRAY[host.pool_id]::bigint[] FROM hosts_host AS host
WHERE event.kind = 'host' AND event.subject = host.id::text AND event.actor ~ '^(user|account):'
"""
_POOLS = """
UPDATE events_event SET pools = ARRAY[subject::bigint] WHERE kind = 'pool' AND subject ~ '^[0-9]{1,18}$'
"""


class Migration(migrations.Migration):

    dependencies = [
        ("events", "0008_what_people_did"),
        ("hosts", "0018_allow_login_account_help"),
        ("jobs", "0028_forecasts_that_left"),
    ]

    operations = [migrations.RunSQL([_JOBS, _HOSTS, _POOLS], migrations.RunSQL.noop, elidable=True)]
