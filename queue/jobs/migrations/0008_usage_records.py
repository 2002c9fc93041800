import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

# what ended before there were records; labels and workspaces of that time were not kept
FORMER = """
INSERT INTO jobs_usagerecord
  (run_key, kind, owner_id, pool_id, slots, started_at, ended_at, labels, experiment_number, workspace)
SELECT a.id || '.' || m.index, t.kind, j.owner_id, a.pool_id, m.slots, a.assigned_at, m.ended_at, '[]',
       CASE WHEN j.kind = 'EXPERIMENT' AND j.entity_id ~ '^[0-9]{1,18}$' THEN j.entity_id::bigint END, ''
FROM jobs_member m JOIN jobs_allocation a ON a.id = m.allocation_id
JOIN jobs_task t ON t.id = a.task_id JOIN jobs_job j ON j.id = t.job_id
WHERE a.state = 'TERMINATED' AND m.ended_at IS NOT NULL
"""


class Migration(migrations.Migration):

    dependencies = [
        ('hosts', '0006_removed_pools'),
        ('jobs', '0007_launch_asked_at'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='UsageRecord',
            fields=[
                ('run_key', models.CharField(max_length=128, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('TRIAL', 'Trial'), ('COMMAND', 'Command')], max_length=8)),
                ('slots', models.PositiveIntegerField()),
                ('started_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField()),
                ('labels', models.JSONField(default=list)),
                ('experiment_number', models.BigIntegerField(null=True)),
                ('workspace', models.CharField(blank=True, max_length=80)),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('pool', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='hosts.resourcepool')),
            ],
            options={
                'indexes': [models.Index(fields=['ended_at'], name='usage_by_end')],
            },
        ),
        migrations.RunSQL(FORMER, migrations.RunSQL.noop),
    ]
