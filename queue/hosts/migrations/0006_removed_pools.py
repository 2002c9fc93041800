from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("hosts", "0005_pool_limits_and_pair_checks"),
    ]

    operations = [
        migrations.AddField(
            model_name="resourcepool",
            name="removed",
            field=models.BooleanField(default=False),
        ),
    ]
