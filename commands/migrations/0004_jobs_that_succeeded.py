from django.db import migrations

SO_FAR = """
UPDATE jobs_job SET succeeded = (command.state = 'COMPLETED') FROM commands_command AS command
WHERE jobs_job.id = command.job_id AND jobs_job.state = 'ENDED'
"""


class Migration(migrations.Migration):
    dependencies = [("commands", "0003_failed_commands"), ("jobs", "0030_dependencies")]

    operations = [migrations.RunSQL(SO_FAR, migrations.RunSQL.noop, elidable=True)]
