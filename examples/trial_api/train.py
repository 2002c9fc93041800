"""The same trial from a script, which says by itself how long to train: with one process, or several.

python3 train.py                                             # off the cluster, once `determined` is importable
python3 -m determined.launch.torch_distributed train.py      # the entrypoint of script.yaml
"""

from __future__ import annotations

import logging

import determined as det
from determined import pytorch
from model_def import DigitsTrial

HPARAMS = {"global_batch_size": 64, "learning_rate": 0.05, "width": 8, "dropout": 0.2}


def main() -> None:
    info = det.get_cluster_info()
    with pytorch.init(hparams=None if info else HPARAMS) as context:
        pytorch.Trainer(DigitsTrial(context), context).fit(
            max_length=pytorch.Epoch(4),
            validation_period=pytorch.Epoch(1),
            reporting_period=pytorch.Batch(10),
            latest_checkpoint=info.latest_checkpoint if info else None,
        )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    main()
