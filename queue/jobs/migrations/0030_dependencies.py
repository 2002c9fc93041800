import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("jobs", "0029_pools_of_former_events"),
    ]

    operations = [
        migrations.AddField("job", "succeeded", models.BooleanField(null=True)),
        migrations.CreateModel(
            name="Dependency",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("label", models.CharField(max_length=64)),
                (
                    "condition",
                    models.CharField(
                        choices=[("success", "Success"), ("end", "End"), ("failure", "Failure")], max_length=8
                    ),
                ),
                ("met_at", models.DateTimeField(null=True)),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="depends_on", to="jobs.job"
                    ),
                ),
                (
                    "on",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="dependents",
                        to="jobs.job",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(condition=models.Q(("met_at", None)), fields=["job"], name="open_dependencies")
                ],
            },
        ),
    ]
