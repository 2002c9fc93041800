from typing import Any

from django.db import migrations, models


def keep_one_person_working(apps: Any, schema_editor: Any) -> None:
    """Where one person has the server to themselves, their jobs keep running as the login account, as before.

    Where there are more users, an admin decides: until then, jobs of users without a linked account wait or are
    refused on hosts whose login is root or may use sudo, with a sentence that says what to do.
    """
    if apps.get_model("accounts", "User").objects.filter(is_active=True).exclude(role="viewer").count() == 1:
        apps.get_model("hosts", "ResourcePool").objects.update(allow_login_account=True)


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0005_labels_in_plain_words"),
        ("hosts", "0015_drain_cause"),
    ]

    operations = [
        migrations.AddField(
            model_name="resourcepool",
            name="allow_login_account",
            field=models.BooleanField(
                default=False,
                help_text="jobs may run as a login account that is root or may use sudo: those of users without a "
                "linked account, and all where the account is shared",
            ),
        ),
        migrations.RunPython(keep_one_person_working, migrations.RunPython.noop),
    ]
