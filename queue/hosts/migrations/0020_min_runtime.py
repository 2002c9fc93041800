from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('hosts', '0019_drain_while_adding'),
    ]

    operations = [
        migrations.AddField(
            model_name='resourcepool',
            name='min_runtime_seconds',
            field=models.JSONField(blank=True, default=dict),
        ),
    ]
