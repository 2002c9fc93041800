"""The plugin for submitit and Hydra's submitit launcher (docs/slurm.md). They alone load it."""
