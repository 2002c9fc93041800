"""Limits and intervals: settings, each with its unit in its name, and an environment variable that changes it."""

from django.core.exceptions import ImproperlyConfigured

from webui import environment

TICK_SECONDS = environment.number("TRAINMASTER_TICK_SECONDS", 1.0)
SCHEDULE_SECONDS = environment.number("TRAINMASTER_SCHEDULE_SECONDS", 10.0)
SWEEP_SECONDS = environment.number("TRAINMASTER_SWEEP_SECONDS", 5.0)
# A part of the server that has not stamped its row for so long was away; what was seen before is not evidence any more.
PRESENCE_GAP_SECONDS = environment.number("TRAINMASTER_PRESENCE_GAP_SECONDS", max(15.0, 3 * SWEEP_SECONDS))
# Work that one worker at a time does is another's when its worker was not heard for so long, and a transaction in which
# nothing was asked for so long is ended by PostgreSQL, with its locks: a frozen worker holds up the others no longer.
LEASE_SECONDS = environment.number("TRAINMASTER_LEASE_SECONDS", 30.0)
IDLE_TRANSACTION_SECONDS = environment.number("TRAINMASTER_IDLE_TRANSACTION_SECONDS", 30.0)
# Each worker sends itself a message so often; when two in a row are not heard it ends, to be replaced.
CANARY_SECONDS = environment.number("TRAINMASTER_CANARY_SECONDS", 30.0)
# A connection to PostgreSQL whose other end does not answer is given up after so long, by either end.
DATABASE_SILENT_SECONDS = environment.number("TRAINMASTER_DATABASE_SILENT_SECONDS", 20.0)
HOST_SILENT_AFTER_SECONDS = environment.number("TRAINMASTER_HOST_SILENT_AFTER_SECONDS", 30.0)
SSH_CONNECT_TIMEOUT_SECONDS = environment.number("TRAINMASTER_SSH_CONNECT_TIMEOUT_SECONDS", 15.0)
SSH_KEEPALIVE_SECONDS = environment.number("TRAINMASTER_SSH_KEEPALIVE_SECONDS", 9.0)
SSH_PENDING_DIALS_PER_HOST = int(environment.number("TRAINMASTER_SSH_PENDING_DIALS_PER_HOST", 4))
SSH_SESSIONS_PER_HOST = int(environment.number("TRAINMASTER_SSH_SESSIONS_PER_HOST", 4))
SSH_LIMIT_RETRY_SECONDS = environment.number("TRAINMASTER_SSH_LIMIT_RETRY_SECONDS", 10.0)
# What is sent to a host (a job's folder, our own bundle) has as long as it takes at this rate, which is 128 kbit/s.
SSH_LEAST_BYTES_PER_SECOND = environment.number("TRAINMASTER_SSH_LEAST_BYTES_PER_SECOND", 16_000.0)
SSH_IDLE_SECONDS = environment.number("TRAINMASTER_SSH_IDLE_SECONDS", 600.0)
HOST_PROBE_SECONDS = environment.number(
    "TRAINMASTER_HOST_PROBE_SECONDS", min(10.0, HOST_SILENT_AFTER_SECONDS / 3)
)
# How often the nodes of a Slurm pool, and who else computes there, are read: three commands of Slurm each time.
SLURM_FACTS_SECONDS = environment.number("TRAINMASTER_SLURM_FACTS_SECONDS", 60.0)
# A host is declared lost by its pool's rule only after so many failed contacts in a row.
HOST_LOST_CONTACTS = int(environment.number("TRAINMASTER_HOST_LOST_CONTACTS", 3))
HOST_PROBES_AT_ONCE = int(environment.number("TRAINMASTER_HOST_PROBES_AT_ONCE", 16))
# hosts with GPUs are asked so often who computes on them without the queue
GPU_USERS_SECONDS = environment.number("TRAINMASTER_GPU_USERS_SECONDS", 15.0)
TUNNEL_LEASE_SECONDS = environment.number("TRAINMASTER_TUNNEL_LEASE_SECONDS", 15.0)
STOP_GRACE_SECONDS = environment.number("TRAINMASTER_STOP_GRACE_SECONDS", 30.0)
# a kill by a person: between SIGTERM and SIGKILL
KILL_GRACE_SECONDS = environment.number("TRAINMASTER_KILL_GRACE_SECONDS", 10.0)
# what is left of a run that is over has so long between SIGTERM and SIGKILL
CLEANING_GRACE_SECONDS = environment.number("TRAINMASTER_CLEANING_GRACE_SECONDS", 5.0)
# processes that survive SIGKILL for so long: the run ends without them, and its host is drained
UNKILLABLE_SECONDS = environment.number("TRAINMASTER_UNKILLABLE_SECONDS", 90.0)
GANG_FAILURE_GRACE_SECONDS = environment.number("TRAINMASTER_GANG_FAILURE_GRACE_SECONDS", 5.0)
PREEMPTION_TIMEOUT_SECONDS = environment.number("TRAINMASTER_PREEMPTION_TIMEOUT_SECONDS", 3600.0)
# Before a window (maintenance or a reservation) its hosts are free for so much longer than work needs to save and stop.
WINDOW_MARGIN_SECONDS = environment.number("TRAINMASTER_WINDOW_MARGIN_SECONDS", 120.0)
# Work that can neither save nor has a time limit does not start on these hosts for so long before the window.
WINDOW_AHEAD_SECONDS = environment.number("TRAINMASTER_WINDOW_AHEAD_SECONDS", 86400.0)
# Forecasts look at so many days of ended work, read anew after so many seconds; of a large pool they are made so often.
FORECAST_HISTORY_DAYS = environment.number("TRAINMASTER_FORECAST_HISTORY_DAYS", 30.0)
FORECAST_HISTORY_SECONDS = environment.number("TRAINMASTER_FORECAST_HISTORY_SECONDS", 60.0)
# All rows of a pool are read again after so long, to check what a process keeps of them between passes. It is less than
# FORECAST_HISTORY_SECONDS, since requests are then built again and would not be compared.
SURVEY_CHECK_SECONDS = environment.number("TRAINMASTER_SURVEY_CHECK_SECONDS", 45.0)
FORECAST_SECONDS = environment.number("TRAINMASTER_FORECAST_SECONDS", 5.0)
# A run is told so long before its time limit (at most a tenth of it), and has so long to save when it is reached.
TIME_WARNING_SECONDS = environment.number("TRAINMASTER_TIME_WARNING_SECONDS", 600.0)
TIME_LIMIT_SAVE_SECONDS = environment.number("TRAINMASTER_TIME_LIMIT_SAVE_SECONDS", 300.0)
# what has ended is settled by its runner's exit record; without one, once nothing has arrived for so long
DRAIN_SECONDS = environment.number("TRAINMASTER_DRAIN_SECONDS", 60.0)
# after a lost message, or one that waits behind others
LAUNCH_AGAIN_SECONDS = environment.number("TRAINMASTER_LAUNCH_AGAIN_SECONDS", 5.0)
#: so many failures in a row of the same exception at the same step, on different hosts, end a trial; 0: none does
SAME_FAILURES = int(environment.number("TRAINMASTER_SAME_FAILURES", 3))
# How often a Slurm cluster is asked for all jobs of a pool: while something may begin or end there, and else.
SLURM_LOOK_SECONDS = environment.number("TRAINMASTER_SLURM_LOOK_SECONDS", 5.0)
SLURM_QUIET_LOOK_SECONDS = environment.number("TRAINMASTER_SLURM_QUIET_LOOK_SECONDS", 30.0)
# How soon after the last time it is asked again once a job there says that it has begun.
SLURM_TOLD_LOOK_SECONDS = environment.number("TRAINMASTER_SLURM_TOLD_LOOK_SECONDS", 0.5)
# A job that Slurm has given nodes gives them back if the server has not sent its run there after so long.
SLURM_START_SECONDS = environment.number("TRAINMASTER_SLURM_START_SECONDS", 600.0)
LAUNCH_ATTEMPTS = int(environment.number("TRAINMASTER_LAUNCH_ATTEMPTS", 3))
# A host that is still starting a run after so long (a network disk that hangs) is told to give it up.
LAUNCH_GIVE_UP_SECONDS = environment.number("TRAINMASTER_LAUNCH_GIVE_UP_SECONDS", 600.0)
# A host that could not start so many different tasks, one after the other, is drained until someone enables it.
HOST_FAILED_STARTS = int(environment.number("TRAINMASTER_HOST_FAILED_STARTS", 3))
# The share of a pool's slots that the server takes out of use because of faults without a person (at least one host),
# and how long after a reboot without another fault it lets them back.
QUARANTINE_SHARE = environment.number("TRAINMASTER_QUARANTINE_SHARE", 0.1)
QUARANTINE_PROBATION_SECONDS = environment.number("TRAINMASTER_QUARANTINE_PROBATION_SECONDS", 86_400.0)
# A burn-in that runs for longer is ended, and told as one that did not finish.
BURN_IN_SECONDS = int(environment.number("TRAINMASTER_BURN_IN_SECONDS", 3600))
HEARTBEAT_SECONDS = environment.number("TRAINMASTER_HEARTBEAT_SECONDS", 5.0)
# A detached run has no host to ask: so long without a sign of life, and it is over until it is heard again.
DETACHED_LOST_SECONDS = environment.number("TRAINMASTER_DETACHED_LOST_SECONDS", 300.0)
SPOOL_BYTES = int(environment.number("TRAINMASTER_SPOOL_BYTES", 2 * 1024**3))
LOG_LINE_BYTES = int(environment.number("TRAINMASTER_LOG_LINE_BYTES", 65_536))
# Log chunks that are older are merged where they are small, every so often, for so long at most.
LOG_COLD_SECONDS = environment.number("TRAINMASTER_LOG_COLD_SECONDS", 60.0)
LOG_MERGE_EVERY_SECONDS = environment.number("TRAINMASTER_LOG_MERGE_EVERY_SECONDS", 30.0)
LOG_MERGE_SECONDS = environment.number("TRAINMASTER_LOG_MERGE_SECONDS", 3.0)
# Hosts of running jobs measure themselves so often (0: never) and ship so many seconds of it together; longer spans
# hold up a live chart, shorter ones cost the server a transaction each.
SAMPLE_SECONDS = environment.number("TRAINMASTER_SAMPLE_SECONDS", 1.0)
SAMPLE_RECORD_SECONDS = environment.number("TRAINMASTER_SAMPLE_RECORD_SECONDS", 10.0)
# Hosts and GPUs that no run measures are asked for a sample so often (0: never), kept for so many days (-1: for ever).
HOST_SAMPLE_SECONDS = environment.number("TRAINMASTER_HOST_SAMPLE_SECONDS", 30.0)
HOST_SAMPLE_RETENTION_DAYS = environment.number("TRAINMASTER_HOST_SAMPLE_RETENTION_DAYS", 30.0)
# Every point is kept so long, then its minutes (lowest, highest, mean); those for so many days (-1: with the job).
SAMPLE_POINTS_HOURS = environment.number("TRAINMASTER_SAMPLE_POINTS_HOURS", 48.0)
SAMPLE_RETENTION_DAYS = environment.number("TRAINMASTER_SAMPLE_RETENTION_DAYS", -1.0)
# Timings of ranks are kept a second apart for so long, then a minute, and after so many days ten minutes; all of them
# as long as minutes of samples.
TIMING_SECONDS_HOURS = environment.number("TRAINMASTER_TIMING_SECONDS_HOURS", 24.0)
TIMING_MINUTES_DAYS = environment.number("TRAINMASTER_TIMING_MINUTES_DAYS", 7.0)
SAMPLE_MERGE_EVERY_SECONDS = environment.number("TRAINMASTER_SAMPLE_MERGE_EVERY_SECONDS", 30.0)
SAMPLE_MERGE_SECONDS = environment.number("TRAINMASTER_SAMPLE_MERGE_SECONDS", 5.0)
# Pools are counted every minute; the minutes are kept for so many days, then ten of them as one for so many.
POOL_MINUTES_DAYS = environment.number("TRAINMASTER_POOL_MINUTES_DAYS", 7.0)
POOL_HISTORY_DAYS = environment.number("TRAINMASTER_POOL_HISTORY_DAYS", 90.0)
# A GPU that is held and stayed under so many per cent for so long is flagged as idle (0 seconds: never).
IDLE_GPU_PERCENT = environment.number("TRAINMASTER_IDLE_GPU_PERCENT", 5.0)
IDLE_GPU_SECONDS = environment.number("TRAINMASTER_IDLE_GPU_SECONDS", 600.0)
# how often the server sees which trainings make no progress
HANG_LOOK_SECONDS = environment.number("TRAINMASTER_HANG_LOOK_SECONDS", 15.0)
# a context as base64 in JSON, and its config; nothing larger is taken from anybody but runs
REQUEST_BYTES = int(environment.number("TRAINMASTER_REQUEST_BYTES", 160 * 1024 * 1024))
# what somebody sends who is not logged in, and to log in
OPEN_REQUEST_BYTES = int(environment.number("TRAINMASTER_OPEN_REQUEST_BYTES", 64 * 1024))
CONTEXT_BYTES = 95 * 1024 * 1024
# What webui.connections allows before a login is checked: the size of a request's URL, headers and trailers together,
# the time for them, and the time for the body, plus more for what has arrived, at this rate. If a client reads nothing
# of an answer for so long, the connection is cut.
REQUEST_HEAD_BYTES = int(environment.number("TRAINMASTER_REQUEST_HEAD_BYTES", 64 * 1024))
REQUEST_HEAD_SECONDS = environment.number("TRAINMASTER_REQUEST_HEAD_SECONDS", 30.0)
REQUEST_BODY_SECONDS = environment.number("TRAINMASTER_REQUEST_BODY_SECONDS", 60.0)
REQUEST_LEAST_BYTES_PER_SECOND = environment.number("TRAINMASTER_REQUEST_LEAST_BYTES_PER_SECOND", 1000.0)
ANSWER_UNREAD_SECONDS = environment.number("TRAINMASTER_ANSWER_UNREAD_SECONDS", 600.0)
# one message of a client to a socket of the console's own; a notebook's may be larger (embedded.serve)
SOCKET_MESSAGE_BYTES = int(environment.number("TRAINMASTER_SOCKET_MESSAGE_BYTES", 1024 * 1024))
# Wrong passwords within the window: for one name from one address, and from one address for all names together.
LOGIN_ATTEMPTS = int(environment.number("TRAINMASTER_LOGIN_ATTEMPTS", 20))
LOGIN_ATTEMPTS_PER_ADDRESS = int(
    environment.number("TRAINMASTER_LOGIN_ATTEMPTS_PER_ADDRESS", 5 * LOGIN_ATTEMPTS)
)
LOGIN_WINDOW_SECONDS = int(environment.number("TRAINMASTER_LOGIN_WINDOW_SECONDS", 60))
# What one user may have at once: work that has not ended (waiting, paused or running), submissions within a minute,
# schedules, access tokens, and in one web process sockets and large requests under way.
UNFINISHED_JOBS_PER_USER = int(environment.number("TRAINMASTER_UNFINISHED_JOBS_PER_USER", 20_000))
ELEMENTS_PER_ARRAY = int(environment.number("TRAINMASTER_ELEMENTS_PER_ARRAY", 2000))
SUBMISSIONS_PER_MINUTE = int(environment.number("TRAINMASTER_SUBMISSIONS_PER_MINUTE", 1000))
SCHEDULES_PER_USER = int(environment.number("TRAINMASTER_SCHEDULES_PER_USER", 200))
ACCESS_TOKENS_PER_USER = int(environment.number("TRAINMASTER_ACCESS_TOKENS_PER_USER", 200))
SOCKETS_PER_USER = int(environment.number("TRAINMASTER_SOCKETS_PER_USER", 200))
# Requests of one user that a web process works on at the same time; further ones wait for so long, then are refused.
REQUESTS_AT_ONCE_PER_USER = int(environment.number("TRAINMASTER_REQUESTS_AT_ONCE_PER_USER", 6))
TURN_SECONDS = environment.number("TRAINMASTER_TURN_SECONDS", 60.0)
UPLOADS_PER_USER = int(environment.number("TRAINMASTER_UPLOADS_PER_USER", 8))
# What one trial reports and one gang member ships: metrics in all groups together, bytes of its outbox. Beyond them,
# reports with new metrics are refused in the log, and lines of the log are dropped.
METRIC_NAMES_PER_TRIAL = int(environment.number("TRAINMASTER_METRIC_NAMES_PER_TRIAL", 20_000))
LOG_BYTES_PER_RUN = int(environment.number("TRAINMASTER_LOG_BYTES_PER_RUN", 256 * 1024**3))
# One job (all its runs together) may ship so much into one web process in the long run, and so much more at once: some
# 150,000 lines of 100 bytes a second. A refused runner keeps its lines on its host and retries.
LOG_BYTES_PER_SECOND = environment.number("TRAINMASTER_LOG_BYTES_PER_SECOND", 16 * 1024**2)
LOG_BURST_BYTES = environment.number("TRAINMASTER_LOG_BURST_BYTES", 64 * 1024**2)
# Files of checkpoints and for TensorBoard that the runs of one user send to one web process at the same time.
RUN_UPLOADS_PER_USER = int(environment.number("TRAINMASTER_RUN_UPLOADS_PER_USER", 32))
# TensorBoard files of a trial: total bytes and number of files.
EVENT_FILES_BYTES_PER_TRIAL = int(environment.number("TRAINMASTER_EVENT_FILES_BYTES_PER_TRIAL", 2 * 1024**3))
EVENT_FILES_PER_TRIAL = int(environment.number("TRAINMASTER_EVENT_FILES_PER_TRIAL", 2000))
# Images, histograms, texts and tables of a trial: total bytes and number of them. The first ones are kept.
MEDIA_BYTES_PER_TRIAL = int(environment.number("TRAINMASTER_MEDIA_BYTES_PER_TRIAL", 1024**3))
MEDIA_ITEMS_PER_TRIAL = int(environment.number("TRAINMASTER_MEDIA_ITEMS_PER_TRIAL", 10_000))
LOGIN_TOKEN_DAYS = environment.number("TRAINMASTER_LOGIN_TOKEN_DAYS", 7.0)
# Access tokens: how long one counts unless its maker says otherwise, and at most (-1: for ever); when one was used last
# is written so often.
ACCESS_TOKEN_DAYS = environment.number("TRAINMASTER_ACCESS_TOKEN_DAYS", 30.0)
ACCESS_TOKEN_DAYS_MAX = environment.number("TRAINMASTER_ACCESS_TOKEN_DAYS_MAX", -1.0)
TOKEN_USED_EVERY_SECONDS = environment.number("TRAINMASTER_TOKEN_USED_EVERY_SECONDS", 60.0)
# When a user was last seen is written so often.
USER_SEEN_EVERY_SECONDS = environment.number("TRAINMASTER_USER_SEEN_EVERY_SECONDS", 60.0)
# Logs of ended jobs are removed after so many days (-1: never), unless their config or a person says otherwise; looked
# at so often, for so long at most at once.
LOG_RETENTION_DAYS = int(environment.number("TRAINMASTER_LOG_RETENTION_DAYS", -1))
LOG_CLEANUP_SECONDS = environment.number("TRAINMASTER_LOG_CLEANUP_SECONDS", 3600.0)
LOG_CLEANUP_ROUND_SECONDS = environment.number("TRAINMASTER_LOG_CLEANUP_ROUND_SECONDS", 20.0)
# Pages warn while the data folder has less space left, and images of trials are not kept.
DISK_NEARLY_FULL_BYTES = int(environment.number("TRAINMASTER_DISK_NEARLY_FULL_BYTES", 512 * 1024**2))
# Files of deleted checkpoints are removed for so long at most at once.
CHECKPOINT_REMOVAL_ROUND_SECONDS = environment.number("TRAINMASTER_CHECKPOINT_REMOVAL_ROUND_SECONDS", 30.0)
# An edit of the queue may be undone by its author for so long.
QUEUE_UNDO_SECONDS = environment.number("TRAINMASTER_QUEUE_UNDO_SECONDS", 900.0)
# Events are looked through so often for what people want to hear of; a receiver has so long to answer, and so many
# tries; deliveries are kept for so many days.
NOTIFY_SECONDS = environment.number("TRAINMASTER_NOTIFY_SECONDS", 3.0)
NOTIFY_WATCH_SECONDS = environment.number("TRAINMASTER_NOTIFY_WATCH_SECONDS", 30.0)
NOTIFY_TIMEOUT_SECONDS = environment.number("TRAINMASTER_NOTIFY_TIMEOUT_SECONDS", 10.0)
NOTIFY_ROUND_SECONDS = environment.number("TRAINMASTER_NOTIFY_ROUND_SECONDS", 20.0)
NOTIFY_ATTEMPTS = int(environment.number("TRAINMASTER_NOTIFY_ATTEMPTS", 8))
NOTIFY_HISTORY_DAYS = environment.number("TRAINMASTER_NOTIFY_HISTORY_DAYS", 30.0)
# Event rows (timelines of pages, the server's history) of work that has ended are kept for so many days (-1: for ever).
EVENT_RETENTION_DAYS = environment.number("TRAINMASTER_EVENT_RETENTION_DAYS", 365.0)
# Shells, notebooks and TensorBoards: their use is noted so often; so many notebooks are asked at once whether they are
# idle; a TensorBoard that nobody uses ends after so long, unless its config says otherwise (0: never).
SERVICE_USED_EVERY_SECONDS = environment.number("TRAINMASTER_SERVICE_USED_EVERY_SECONDS", 30.0)
SERVICES_ASKED_AT_ONCE = int(environment.number("TRAINMASTER_SERVICES_ASKED_AT_ONCE", 16))
TENSORBOARD_IDLE_SECONDS = int(environment.number("TRAINMASTER_TENSORBOARD_IDLE_SECONDS", 1800))
# Whether somebody may use a task is looked up anew so often, in requests and for what stays open: what a revoked login
# has opened ends within twice that. On an origin of tasks, a login lasts so long after its last use, or half of it.
PROXY_ACCESS_SECONDS = environment.number("TRAINMASTER_PROXY_ACCESS_SECONDS", 5.0)
PROXY_LOGIN_SECONDS = environment.number("TRAINMASTER_PROXY_LOGIN_SECONDS", 7200.0)
# A job leases ports of hosts between these.
PORT_LEASE_FIRST = int(environment.number("TRAINMASTER_PORT_LEASE_FIRST", 20_000))
PORT_LEASE_LAST = int(environment.number("TRAINMASTER_PORT_LEASE_LAST", 24_999))

if PRESENCE_GAP_SECONDS <= SWEEP_SECONDS:
    raise ImproperlyConfigured(
        f"TRAINMASTER_PRESENCE_GAP_SECONDS is {PRESENCE_GAP_SECONDS}; allowed: more than {SWEEP_SECONDS}, the time "
        "between two sweeps (TRAINMASTER_SWEEP_SECONDS)."
    )
if TICK_SECONDS <= 0:
    raise ImproperlyConfigured(f"TRAINMASTER_TICK_SECONDS is {TICK_SECONDS}; allowed: more than 0.")
if not -1 <= LOG_RETENTION_DAYS <= 32767:
    raise ImproperlyConfigured(
        f"TRAINMASTER_LOG_RETENTION_DAYS is {LOG_RETENTION_DAYS}; allowed: -1 (forever) to 32767."
    )
if EVENT_RETENTION_DAYS != -1 and EVENT_RETENTION_DAYS < 1:
    raise ImproperlyConfigured(
        f"TRAINMASTER_EVENT_RETENTION_DAYS is {EVENT_RETENTION_DAYS:g}; allowed: -1 (forever), or 1 or more."
    )
