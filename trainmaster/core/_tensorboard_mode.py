"""Who brings files for TensorBoard to the storage. Training code for Determined imports this module by its name."""

import enum


class TensorboardMode(enum.Enum):
    """Who brings the files to the storage: a thread every half minute, or `upload_tensorboard_files` when called."""

    AUTO = "AUTO"
    MANUAL = "MANUAL"
