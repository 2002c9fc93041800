import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("logs", "0003_chunks_of_text"),
    ]

    operations = [
        migrations.CreateModel(
            name="MemberPulse",
            fields=[
                (
                    "member",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="pulse",
                        serialize=False,
                        to="jobs.member",
                    ),
                ),
                ("at", models.DateTimeField()),
                ("ranks", models.JSONField()),
            ],
        ),
        migrations.CreateModel(
            name="RankStack",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("rank", models.IntegerField()),
                ("asked_at", models.DateTimeField()),
                ("asked_by", models.CharField(max_length=160)),
                ("answered_at", models.DateTimeField(null=True)),
                ("text", models.TextField(blank=True)),
                ("found", models.BooleanField(default=False)),
                (
                    "task",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="rank_stacks",
                        to="jobs.task",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("task", "rank"), name="stack_asked_once_per_rank")
                ],
            },
        ),
    ]
