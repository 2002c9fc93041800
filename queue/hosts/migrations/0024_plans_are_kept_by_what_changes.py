from django.db import migrations, models

#: Promises are kept. The plan itself is made again by the first pass.
_FORECASTS = """
UPDATE hosts_poolplan SET document = '{}', forecast = jsonb_strip_nulls(jsonb_build_object(
  'forecast', document->'forecast', 'forecast_of', document->'forecast_of', 'unknown', document->'unknown',
  'promises', document->'promises', 'places', document->'places'));
UPDATE hosts_resourcepool SET planned_at = NULL;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('hosts', '0023_kernel_signs'),
    ]

    operations = [
        migrations.AddField(
            model_name='poolplan',
            name='written_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='poolplan',
            name='changes',
            field=models.JSONField(default=dict),
        ),
        migrations.AddField(
            model_name='poolplan',
            name='took_ms',
            field=models.FloatField(null=True),
        ),
        migrations.AddField(
            model_name='poolplan',
            name='forecast',
            field=models.JSONField(default=dict),
        ),
        migrations.AddField(
            model_name='poolplan',
            name='forecast_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='poolplan',
            name='forecast_ms',
            field=models.FloatField(null=True),
        ),
        migrations.RunSQL(_FORECASTS, migrations.RunSQL.noop),
    ]
