from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('events', '0003_presence'),
    ]

    operations = [
        migrations.CreateModel(
            name='Lease',
            fields=[
                ('name', models.CharField(max_length=128, primary_key=True, serialize=False)),
                ('holder', models.CharField(max_length=160)),
                ('fence', models.BigIntegerField()),
                ('taken_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
            ],
        ),
    ]
