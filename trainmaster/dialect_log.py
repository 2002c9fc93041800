"""The loggers of Determined's package, under which the SDK says what scripts for it turn on and search for.

What the SDK says in its own words, under `trainmaster`, obeys the level of `determined` too, and reaches its handlers.
"""

import logging

core = logging.getLogger("determined.core")
pytorch = logging.getLogger("determined.pytorch")
transformers = logging.getLogger("det.transformers")

logging.getLogger("trainmaster").parent = logging.getLogger("determined")
