import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

SO_FAR = """
INSERT INTO experiments_templateuse (user_id, template_name, config, submission)
SELECT DISTINCT ON (owner_id, template_name) owner_id, template_name, template_config, 'experiment ' || id
FROM experiments_experiment WHERE template_name <> '' ORDER BY owner_id, template_name, id DESC
"""


class Migration(migrations.Migration):
    dependencies = [
        ("experiments", "0013_owners_of_templates"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="TemplateUse",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("template_name", models.CharField(max_length=128)),
                ("config", models.JSONField()),
                ("submission", models.CharField(max_length=64)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="templateuse",
            constraint=models.UniqueConstraint(fields=("user", "template_name"), name="one_last_use_of_a_template"),
        ),
        migrations.RunSQL(SO_FAR, migrations.RunSQL.noop),
    ]
