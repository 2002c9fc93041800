from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0004_times_of_the_message"),
    ]

    operations = [
        migrations.AlterField(
            model_name="accesstoken",
            name="scope",
            field=models.CharField(
                choices=[
                    ("read", "read only"),
                    ("write", "read, submit jobs and make changes"),
                    ("full", "everything you can do, including your account"),
                ],
                max_length=8,
            ),
        ),
    ]
