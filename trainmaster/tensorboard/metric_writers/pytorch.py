"""`TorchWriter`, of scripts from before contexts had `get_tensorboard_writer`. Importing this imports PyTorch."""

from __future__ import annotations

import os

from torch.utils.tensorboard import SummaryWriter

from trainmaster._info import get_cluster_info
from trainmaster.core._tensorboard import folder_of


class TorchWriter:
    """`writer` is a SummaryWriter on this rank's folder for such files. Use `context.get_tensorboard_writer()`."""

    def __init__(self) -> None:
        rank = int(os.environ.get("RANK") or 0)
        self.writer = SummaryWriter(log_dir=str(folder_of(get_cluster_info(), rank)))

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.writer.add_scalar(name, value, step)

    def flush(self) -> None:
        self.writer.flush()

    def reset(self) -> None:
        """Close the file; what comes next goes to a new one."""
        self.writer.close()
