"""Batch scripts written for Slurm: read, turned into a command of ours, and run on a host (docs/slurm.md).

Where the submission is made: `options` and `script` read, `amounts` and `exports` understand, `translate` builds the
command. On the host: `batch` runs the script, `srun` and `scontrol` are the programs that it finds there.
"""
