from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('hosts', '0018_allow_login_account_help'),
    ]

    operations = [
        migrations.AlterField(
            model_name='host',
            name='drain_cause',
            field=models.CharField(
                blank=True,
                choices=[
                    ('cleanup', 'Cleanup'),
                    ('failed_starts', 'Failed Starts'),
                    ('adding', 'Adding'),
                ],
                max_length=16,
            ),
        ),
    ]
