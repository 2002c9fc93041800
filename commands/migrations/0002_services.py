import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('commands', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='Service',
            fields=[
                ('command', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='service', serialize=False, to='commands.command')),
                ('port', models.PositiveIntegerField(null=True)),
                ('ready_at', models.DateTimeField(null=True)),
                ('used_at', models.DateTimeField(null=True)),
                ('idle_timeout_seconds', models.PositiveIntegerField(null=True)),
                ('experiment_ids', models.JSONField(default=list)),
                ('trial_ids', models.JSONField(default=list)),
            ],
        ),
    ]
