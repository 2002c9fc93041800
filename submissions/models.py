"""What people hand in beside a config: the folder of code."""

from django.db import models


class Context(models.Model):
    """A submitted folder of code, stored once by content."""

    sha256 = models.CharField(max_length=64, primary_key=True)
    archive = models.BinaryField()  # tar.gz
    size_bytes = models.BigIntegerField()  # of the files
    #: [{"path", "size", "mode", "type": "f"|"d"}]
    listing = models.JSONField()
