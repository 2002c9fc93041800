"""The pages of an experiment, a trial and a task: the last parts of their addresses, in the order of their tabs."""

EXPERIMENT = ["overview", "checkpoints", "config", "code", "notes", "timeline"]
#: behind the first of those, of an experiment with several trials
SEARCH = ["search", "visualization", "trials", "media"]
TRIAL = ["overview", "metrics", "profiler", "media", "checkpoints", "logs", "timeline"]
TASK = ["log", "config", "timeline"]
