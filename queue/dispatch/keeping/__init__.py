"""What is kept, summed up and removed in time: checkpoints, logs, events, usage, the history of pools."""
