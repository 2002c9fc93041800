from django.db import migrations, models

#: What a server of before stores meanwhile is not counted, so such a trial may keep a little more than its limit.
SO_FAR = """
UPDATE experiments_trial SET media_count = kept.count, media_bytes = kept.bytes
FROM (SELECT trial_id, count(*) AS count, sum(size) AS bytes FROM experiments_media GROUP BY trial_id) AS kept
WHERE experiments_trial.id = kept.trial_id
"""


class Migration(migrations.Migration):
    dependencies = [("experiments", "0017_media_of_trials")]

    operations = [
        migrations.AddField("trial", "media_count", models.IntegerField(db_default=0, default=0)),
        migrations.AddField("trial", "media_bytes", models.BigIntegerField(db_default=0, default=0)),
        migrations.RunSQL(SO_FAR, migrations.RunSQL.noop),
    ]
