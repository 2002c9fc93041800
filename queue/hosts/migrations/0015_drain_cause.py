from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('hosts', '0014_drain_reason'),
    ]

    operations = [
        migrations.AddField(
            model_name='host',
            name='drain_cause',
            field=models.CharField(
                blank=True,
                choices=[('cleanup', 'Cleanup'), ('failed_starts', 'Failed Starts')],
                max_length=16,
            ),
        ),
    ]
