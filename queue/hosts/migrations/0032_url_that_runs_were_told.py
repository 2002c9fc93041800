from typing import Any

from django.db import migrations, models
from django.db.models import F


def told(apps: Any, schema_editor: Any) -> None:
    """Whoever runs now has been told the address that is in use."""
    apps.get_model('hosts', 'Host').objects.update(told_url=F('server_url'))


class Migration(migrations.Migration):

    dependencies = [
        ('hosts', '0031_pool_burn_ins'),
    ]

    operations = [
        migrations.AddField(
            model_name='host',
            name='told_url',
            field=models.CharField(blank=True, default='', max_length=255),
        ),
        migrations.RunPython(told, migrations.RunPython.noop),
    ]
