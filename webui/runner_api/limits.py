"""Limits of the runner's road, each with its unit in its name."""

from __future__ import annotations

from webui import environment

#: One batch as sent, and unpacked. A runner sends 1 MiB of its outbox, or one longer record.
BATCH_BYTES_SENT = int(environment.number("TRAINMASTER_BATCH_BYTES_SENT", 8 * 1024**2))
BATCH_BYTES_UNPACKED = int(environment.number("TRAINMASTER_BATCH_BYTES_UNPACKED", 32 * 1024**2))
#: Batches that one process holds in memory at once; a runner that comes on top is told to come later.
PENDING_BATCHES = int(environment.number("TRAINMASTER_PENDING_BATCHES", 64))
PENDING_BYTES = int(environment.number("TRAINMASTER_PENDING_BYTES", 64 * 1024**2))
#: Batches of one job that are stored at the same time, and those that may be here in all.
JOB_BATCHES_AT_WORK = 2
JOB_PENDING_BATCHES = max(1, PENDING_BATCHES // 2)
#: A body that stops to arrive is given up after this time.
BODY_SECONDS = environment.number("TRAINMASTER_BODY_SECONDS", 60.0)
SMALL_BODY_BYTES = 256 * 1024
#: The file lists of checkpoints with very many files (100,000 of 80 bytes each) come in the body of `complete`.
COMPLETE_BODY_BYTES = 8 * 1024**2
#: Reading a larger body as JSON would hold up everybody else's requests, so a thread does it.
PARSED_AT_ONCE_BYTES = 64 * 1024
LONG_POLL_SECONDS_MAX = 60.0
RETRY_AFTER_SECONDS = 1
#: The database is away: longer than a restart of it takes.
UNAVAILABLE_RETRY_AFTER_SECONDS = 2
#: A disk of the server is full: people have to free space.
FULL_DISK_RETRY_AFTER_SECONDS = 15
FILE_BLOCK_BYTES = 1024**2
NONCE_CHARACTERS_MAX = 256
#: of X-Trainmaster-Challenge: the id of an allocation and a nonce
CHALLENGE_CHARACTERS_MAX = 300
#: A process believes for so long what it has read of who this server is, and longer only while the database is away.
CLUSTER_SEEN_SECONDS = 1.0
#: An answer waits for that reading no longer than this.
CLUSTER_READ_SECONDS = 2.0
#: Files for TensorBoard come in parts of at most 1 MiB.
EVENT_FILE_PART_BYTES = 2 * 1024**2

#: of a file for TensorBoard, at once
TENSORBOARD_BLOCK_BYTES = 8 * 1024 * 1024
#: of an experiment, the first ones, as many as Determined shows
TENSORBOARD_TRIALS = 100
