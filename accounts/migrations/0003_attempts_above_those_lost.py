from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0002_access_tokens'),
    ]

    operations = [
        migrations.AddField(
            model_name='cluster',
            name='attempts_above',
            field=models.PositiveIntegerField(default=0),
        ),
    ]
