"""What the beat of each worker asks for, and how often. Each entry only makes somebody look.

Its messages do not expire: that time would be of one machine's clock and be judged by another's. What waited in
Redis for a worker is cheap instead, for each task first asks the database whether anything is due.
"""

from webui import limits

#: Task name -> seconds between two messages.
BEAT: dict[str, float] = {
    "dispatch.tasks.tick": limits.TICK_SECONDS,
    "dispatch.tasks.submit_scheduled": limits.SCHEDULE_SECONDS,
    "dispatch.tasks.sweep": limits.SWEEP_SECONDS,
    "notifications.tasks.look": limits.NOTIFY_SECONDS,
    "notifications.tasks.watch": limits.NOTIFY_WATCH_SECONDS,
    "dispatch.tasks.merge_cold_logs": limits.LOG_MERGE_EVERY_SECONDS,
    "dispatch.tasks.merge_samples": limits.SAMPLE_MERGE_EVERY_SECONDS,
    "dispatch.host_tasks.probe_all": limits.SWEEP_SECONDS,
    "dispatch.tasks.clean_logs": limits.LOG_CLEANUP_SECONDS,
    "dispatch.tasks.look_back": 60.0,
    "dispatch.tasks.collect_garbage": 60.0,
}
