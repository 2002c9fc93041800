from django.db import migrations

#: those of runs outside the queue stay unknown: nobody can wait for them
SO_FAR = """
UPDATE jobs_job SET succeeded = (experiment.state = 'COMPLETED') FROM experiments_experiment AS experiment
WHERE jobs_job.id = experiment.job_id AND jobs_job.state = 'ENDED' AND NOT experiment.unmanaged
"""


class Migration(migrations.Migration):
    dependencies = [("experiments", "0018_media_counted"), ("jobs", "0030_dependencies")]

    operations = [migrations.RunSQL(SO_FAR, migrations.RunSQL.noop, elidable=True)]
