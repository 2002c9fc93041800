"""The failure modes that Trainmaster survives, by the numbers that `@pytest.mark.survive(N)` uses."""

from __future__ import annotations

from typing import NamedTuple


class Mode(NamedTuple):
    failure: str
    #: what must happen
    must: str


#: the heading of the page that begins at a mode
PARTS = {
    1: "Hosts and SSH",
    11: "Processes and gangs",
    18: "Scheduler, queue and database",
    28: "Logs and live pages",
    31: "Storage, secrets and pages",
    36: "Restores, upgrades and hostile surroundings",
    45: "Slurm clusters",
}

MODES = {
    1: Mode(
        "A host is unreachable for seconds or minutes",
        "The host is shown as silent. Its run is neither canceled nor started again, its slots stay taken, "
        "and the log catches up when the host is back.",
    ),
    2: Mode(
        "A link is half open",
        "It is noticed within 30 seconds, only that connection is dropped, and no line is lost or repeated.",
    ),
    3: Mode(
        "sshd allows no more sessions or logins",
        "Callers wait for their turn and dial again. It never counts as a failure of the host.",
    ),
    4: Mode(
        "A host key is unknown or has changed",
        "An unknown key is shown and waits for an admin. A changed key suspends the host: nothing is sent "
        "there, and what runs there is left alone.",
    ),
    5: Mode(
        "Output is not UTF-8, or floods one stream",
        "Every byte survives, both streams are always read, and other sessions on the connection are not "
        "affected.",
    ),
    6: Mode(
        "The control plane is killed in the middle of a run",
        "Runs continue and are adopted at the next start. What ended in between gets its true exit code, and "
        "an end that is recorded never changes.",
    ),
    7: Mode(
        "logind or systemd ends processes at logout or with a service",
        "The host's settings are read before it is used. Runs leave the session or service that started them "
        "where that is allowed; otherwise the report says that runs are in danger.",
    ),
    8: Mode(
        "A host reboots, and process ids are used again",
        "Another boot id ends the run as a restart of the host. A process whose start time differs is never "
        "signaled.",
    ),
    9: Mode(
        "A disk is full, on a host or on the server",
        "The log names the disk, and the run continues. The server keeps serving pages, stores nothing by "
        "half, and takes in the rest from where it stopped once there is space.",
    ),
    10: Mode(
        "Clocks differ by minutes",
        "Lines are ordered by rank and sequence, durations come from one clock, and the difference is "
        "measured and shown.",
    ),
    11: Mode(
        "One rank fails and its peers hang",
        "The whole gang is stopped within seconds, and the first rank that failed is named as the cause.",
    ),
    12: Mode(
        "The launcher is killed and its workers live, or the reverse",
        "The launcher is stopped first, then its group, then whatever else carries the run's marker. Nothing "
        "is left.",
    ),
    13: Mode(
        "Orphaned processes hold a GPU",
        "They are found by the run's marker and ended. Their slot is not given to anybody while they live.",
    ),
    14: Mode(
        "A process cannot be killed",
        "The run ends with a sentence that names job, user, host and process, and its slot is not used again "
        "until the process is gone.",
    ),
    15: Mode(
        "A job needs longer to save than its launcher waits",
        "Ranks hear of the stop themselves and get the job's own time to save, counted from when their host "
        "was told.",
    ),
    16: Mode(
        "A port is in use",
        "Ports are leased and tried before the start. A taken one is exchanged for another, which does not "
        "count as a restart.",
    ),
    17: Mode(
        "A gang gets a wrong address, a wrong interface, or different versions",
        "Hosts of a gang are measured against each other before they share one. A failure names the two hosts "
        "within seconds instead of a timeout of 15 minutes.",
    ),
    18: Mode(
        "Thousands of jobs wait",
        "A pass of the scheduler is bounded in time, keeps what it has decided, and continues at once when "
        "work is left.",
    ),
    19: Mode(
        "There are two schedulers, or two beats",
        "The second one does nothing. No slot is given twice.",
    ),
    20: Mode(
        "A message is delivered twice",
        "The second delivery changes nothing, and a launch that is repeated finds the first one.",
    ),
    21: Mode(
        "A worker lives but hears nothing",
        "It is found within minutes and restarted. The queue moves by what the database says, not by "
        "messages.",
    ),
    22: Mode(
        "Redis restarts, forgets everything, or is full",
        "No job is lost, a cancellation still works, and pages connect again by themselves.",
    ),
    23: Mode(
        "PostgreSQL restarts or is away",
        "Every part connects again by itself. Requests are answered with 503 and repeated, and nothing stored "
        "is lost.",
    ),
    24: Mode(
        "One job crashes each worker that takes it up",
        "Attempts are counted before each step. After three the job fails with a sentence that names the "
        "step.",
    ),
    25: Mode(
        "The server is upgraded or restarted while jobs run",
        "Every part may stop at any time. Clients wait for it, and what older versions have stored stays "
        "readable.",
    ),
    26: Mode(
        "A cancellation and a submission race",
        "Each state has one writer. A cancellation is accepted in every state that is not an end, and a "
        "repeated submission with the same key is the first one.",
    ),
    27: Mode(
        "The wrong run is stopped, or a job starves",
        "One order decides who starts and who is stopped. Nobody is stopped in vain, large gangs get their "
        "turn, and GPUs that others use are left out.",
    ),
    28: Mode(
        "A job floods its log",
        "Each job has a budget for what is taken in. Pages and other jobs do not wait for the flood.",
    ),
    29: Mode(
        "A log contains NUL, control codes or HTML",
        "It is shown as text and never acts. The exact bytes can be downloaded, and a bad line holds up no "
        "other.",
    ),
    30: Mode(
        "A page loses its connection, or reads too slowly",
        "It continues where it was without a gap or a repeat. A slow reader costs others nothing.",
    ),
    31: Mode(
        "A log file is rotated or cut under the runner",
        "It is read from its new start, and what was lost is counted.",
    ),
    32: Mode(
        "Checkpoints are removed while someone needs them",
        "What a trial continues from, or what another began with, is never deleted. A checkpoint counts once "
        "it is whole.",
    ),
    33: Mode(
        "A year of data has piled up",
        "Pages answer as fast as on the first day, and what nobody needs is removed after a named time.",
    ),
    34: Mode(
        "Secrets could leak",
        "No secret is in a command line, a log or an answer.",
    ),
    35: Mode(
        "One page has very many charts",
        "Only the charts in view are drawn.",
    ),
    36: Mode(
        "The server is restored from an old backup",
        "Runs that it does not know are adopted or left alone. What the backup lacks is sent again.",
    ),
    37: Mode(
        "A runner is older than the server",
        "It works through the upgrade to its end.",
    ),
    38: Mode(
        "One host of a gang of three or more is lost",
        "The ranks of the others name it, their slots become free, and the trial starts again once the loss "
        "is known.",
    ),
    39: Mode(
        "Two users share a host",
        "Neither can read or signal the other's processes or files.",
    ),
    40: Mode(
        "Everything is away for longer than every limit",
        "Afterwards everything continues. No host is declared lost and no run is ended because of rows that "
        "grew old.",
    ),
    41: Mode(
        "Another program, or an empty server, answers at the server's address",
        "Its refusals are not believed. Runs continue and wait for the server that started them.",
    ),
    42: Mode(
        "A backlog takes longer to send than every limit",
        "It is taken in to its last byte, as long as it moves.",
    ),
    43: Mode(
        "A job writes garbage into every file that it can write",
        "The runner and the server keep working, and what cannot be read is counted or named.",
    ),
    44: Mode(
        "One host fails every start",
        "Jobs avoid it, it is taken out with a sentence, and none of those starts counts against a job.",
    ),
    45: Mode(
        "The login node or the controller of a cluster is away",
        "Nothing ends because of it, and nothing is submitted twice. That a job is over is believed when squeue has "
        "said so twice. What ended in between has its true end and its whole log.",
    ),
    46: Mode(
        "Slurm or its administrators hold back, requeue, cancel or end jobs",
        "What runs continues as far as Slurm lets it, and what waits says why. An end in Slurm becomes one of ours "
        "with its reason, and no attempt is begun a second time.",
    ),
    47: Mode(
        "A node of a cluster fails in the middle of a run",
        "The run starts again on other nodes without counting a restart, once Slurm has said twice that its job is "
        "over and the server, which was there to hear it, has heard nothing more of it for a while.",
    ),
    48: Mode(
        "Whether Slurm has taken a job is not known",
        "The job is found by its comment and not submitted again. One that nobody wants any more is canceled.",
    ),
    49: Mode(
        "Two installations feed one cluster by the same account",
        "Each knows its own jobs, and leaves those of the other alone.",
    ),
    50: Mode(
        "The folder that a cluster shares is not mounted, or cannot be written to",
        "Nothing ends because of it. What runs continues, and its end and its output are kept until they can be "
        "written.",
    ),
}
