from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('hosts', '0017_launch_error'),
    ]

    operations = [
        migrations.AlterField(
            model_name='resourcepool',
            name='allow_login_account',
            field=models.BooleanField(default=False, help_text='jobs may run as a login account that is root or may become root (by sudo, or by a Docker daemon of root): those of users without a linked account, and all jobs if the account is shared'),
        ),
    ]
