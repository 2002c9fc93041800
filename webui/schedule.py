"""What the beat sends, and how often. Each entry only makes somebody look."""

from webui import limits


def _every(seconds: float, task: str) -> dict[str, object]:
    """An entry of the beat.

    Its messages do not expire: that time would be of one machine's clock and be judged by another's. What waited in
    Redis for a worker is cheap instead, for each task first asks the database whether anything is due.
    """
    return {"task": task, "schedule": seconds}


BEAT = {
    "tick": _every(limits.TICK_SECONDS, "dispatch.tasks.tick"),
    "schedules": _every(limits.SCHEDULE_SECONDS, "dispatch.tasks.submit_scheduled"),
    "sweep": _every(limits.SWEEP_SECONDS, "dispatch.tasks.sweep"),
    "notify": _every(limits.NOTIFY_SECONDS, "notifications.tasks.look"),
    "notify_watch": _every(limits.NOTIFY_WATCH_SECONDS, "notifications.tasks.watch"),
    "merge_cold_logs": _every(limits.LOG_MERGE_EVERY_SECONDS, "dispatch.tasks.merge_cold_logs"),
    "merge_samples": _every(limits.SAMPLE_MERGE_EVERY_SECONDS, "dispatch.tasks.merge_samples"),
    "probe": _every(limits.SWEEP_SECONDS, "dispatch.host_tasks.probe_all"),
    "clean_logs": _every(limits.LOG_CLEANUP_SECONDS, "dispatch.tasks.clean_logs"),
    "look_back": _every(60.0, "dispatch.tasks.look_back"),
    "garbage": _every(60.0, "dispatch.tasks.collect_garbage"),
}
