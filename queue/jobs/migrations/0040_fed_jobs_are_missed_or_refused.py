import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('hosts', '0028_slurm_pools'),
        ('jobs', '0039_reasons_of_hangs'),
    ]

    operations = [
        migrations.AddField(model_name='fedjob', name='refused', field=models.BooleanField(default=False)),
        migrations.AddField(model_name='fedjob', name='missed_at', field=models.DateTimeField(null=True)),
        migrations.AddField(model_name='fedjob', name='nodes_at', field=models.DateTimeField(null=True)),
        migrations.AddField(
            model_name='fedjob', name='back_why', field=models.TextField(blank=True, default=''), preserve_default=False
        ),
        migrations.AlterField(
            model_name='fedjob',
            name='pool',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='fed_jobs', to='hosts.resourcepool'),
        ),
    ]
