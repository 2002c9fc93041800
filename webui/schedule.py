"""What the beat sends, and how often. Each entry only makes somebody look."""

from webui import limits


def _every(seconds: float, task: str, *, counts_for: float = 1.0) -> dict[str, object]:
    """An entry of the beat. A message is dropped when nobody took it within `counts_for` rounds.

    One that waits behind launches still counts for a while.
    """
    return {"task": task, "schedule": seconds, "options": {"expires": counts_for * seconds}}


BEAT = {
    "tick": _every(limits.TICK_SECONDS, "dispatch.tasks.tick", counts_for=5),
    "sweep": _every(limits.SWEEP_SECONDS, "dispatch.tasks.sweep", counts_for=5),
    "notify": _every(limits.NOTIFY_SECONDS, "notifications.tasks.look", counts_for=5),
    "notify_watch": _every(limits.NOTIFY_WATCH_SECONDS, "notifications.tasks.watch"),
    "merge_cold_logs": _every(limits.LOG_MERGE_EVERY_SECONDS, "dispatch.tasks.merge_cold_logs"),
    "merge_samples": _every(limits.SAMPLE_MERGE_EVERY_SECONDS, "dispatch.tasks.merge_samples"),
    "stop_unused": _every(limits.SWEEP_SECONDS, "dispatch.tasks.stop_unused"),
    "probe": _every(limits.SWEEP_SECONDS, "dispatch.host_tasks.probe_all"),
    "tunnels": _every(limits.SWEEP_SECONDS, "dispatch.host_tasks.keep_tunnels"),
    "clean_logs": _every(limits.LOG_CLEANUP_SECONDS, "dispatch.tasks.clean_logs"),
    "look_back": _every(60.0, "dispatch.tasks.look_back"),
    "garbage": _every(60.0, "dispatch.tasks.collect_garbage"),
}
