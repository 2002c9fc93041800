"""What is known of Slurm without asking it: how its answers are read, what its words mean, a pool's settings (pure)."""
