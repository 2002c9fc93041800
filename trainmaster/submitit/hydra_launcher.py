"""`hydra/launcher=submitit_trainmaster`. The wheel carries it as hydra_plugins.trainmaster_submitit_launcher."""

# Hydra 1.3 executes this file without entering it into sys.modules, where dataclasses look up postponed annotations: so
# they are not postponed here.
import contextlib
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

with contextlib.suppress(
    ImportError
):  # Hydra reads every module here, also where its submitit launcher is not installed
    from hydra.core.config_store import ConfigStore
    from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf
    from hydra_plugins.hydra_submitit_launcher.submitit_launcher import BaseSubmititLauncher

    class TrainmasterLauncher(BaseSubmititLauncher):
        """Hydra's, for our executor."""

        _EXECUTOR = "trainmaster"

    @dataclass
    class TrainmasterQueueConf(BaseQueueConf):
        """Parameters of the executor; docs/slurm.md says what becomes of each."""

        _target_: str = "hydra_plugins.trainmaster_submitit_launcher.TrainmasterLauncher"
        partition: Optional[str] = None
        comment: Optional[str] = None
        exclude: Optional[str] = None
        nodelist: Optional[str] = None
        gres: Optional[str] = None
        gpus_per_task: Optional[int] = None
        signal_delay_s: int = 120
        max_num_timeout: int = 0
        array_parallelism: int = 256
        setup: Optional[List[str]] = None
        additional_parameters: Dict[str, Any] = field(default_factory=dict)

    ConfigStore.instance().store(
        group="hydra/launcher",
        name="submitit_trainmaster",
        node=TrainmasterQueueConf(),
        provider="trainmaster_submitit_launcher",
    )
