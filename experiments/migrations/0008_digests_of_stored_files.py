from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('experiments', '0007_unmanaged_experiments'),
    ]

    operations = [
        migrations.AddField(
            model_name='checkpoint',
            name='digests',
            field=models.JSONField(default=dict),
        ),
    ]
