from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0030_dependencies'),
    ]

    operations = [
        migrations.AddField(
            model_name='task',
            name='only_hosts',
            field=models.JSONField(default=list),
        ),
    ]
