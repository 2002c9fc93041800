
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('hosts', '0016_allow_login_account'),
        ('jobs', '0024_labels_in_plain_words'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddIndex(
            model_name='job',
            index=models.Index(fields=['owner', 'submitted_at'], name='jobs_of_owner'),
        ),
    ]
