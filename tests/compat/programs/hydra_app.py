"""A program of Hydra whose sweep runs on Trainmaster."""

import hydra
from omegaconf import DictConfig


@hydra.main(version_base=None)
def app(config: DictConfig) -> None:
    print(f"x is {config.x} in {hydra.core.hydra_config.HydraConfig.get().job.id}", flush=True)


if __name__ == "__main__":
    app()
