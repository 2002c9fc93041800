"""The options of sbatch, what becomes of each, and how getopt_long reads a line of them (pure)."""

from __future__ import annotations

import posixpath
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

REQUIRED, OPTIONAL, FLAG = "required", "optional", "flag"
#: what becomes of an option: it is taken over; nothing has to be done for it; it is lost, which is said; it is refused
TAKEN, NOTHING, LOST, REFUSED = "taken", "nothing", "lost", "refused"


class BadScript(Exception):
    """The submission cannot be taken; the message is a sentence."""


class Option(NamedTuple):
    """`sentence`: why it is lost or refused, and what to do instead."""

    name: str
    short: str = ""
    value: str = REQUIRED
    fate: str = TAKEN
    sentence: str = ""


_FOLDERS = "name the hosts with --nodelist, or the pool with --partition"
_TUNING = "it tunes how Slurm binds tasks to cores, sockets and GPUs, which is not done here"
_MEMORY = "memory is not reserved; the job is told the value"
_MAIL = "add a rule for your jobs under Notifications (docs/notifications.md)"
_ACCOUNTING = "there are no accounts or classes of service here; groups and pools decide (docs/queue.md)"
_PRIVILEGED = "jobs run as the account that is linked with their user"


def _lost(sentence: str, *names: str, value: str = REQUIRED, short: str = "") -> List[Option]:
    return [Option(name, short, value, LOST, sentence) for name in names]


def _nothing(*names: str, value: str = FLAG) -> List[Option]:
    return [Option(name, "", value, NOTHING) for name in names]


#: in the order of docs/slurm.md
SBATCH: Sequence[Option] = (
    # what Trainmaster adds
    Option("context"),
    Option("config"),
    Option("requeues"),
    Option("strict", "", FLAG),
    # what is taken over
    Option("array", "a"),
    Option("chdir", "D"),
    Option("comment"),
    Option("cpus-per-task", "c"),
    Option("dependency", "d"),
    Option("error", "e"),
    Option("exclude", "x"),
    Option("export"),
    Option("gpus", "G"),
    Option("gpus-per-node"),
    Option("gpus-per-task"),
    Option("gres"),
    Option("help", "h", FLAG),
    Option("input", "i"),
    Option("job-name", "J"),
    Option("nice", "", OPTIONAL),
    Option("nodelist", "w"),
    Option("nodes", "N"),
    Option("ntasks", "n"),
    Option("ntasks-per-gpu"),
    Option("ntasks-per-node"),
    Option("open-mode"),
    Option("output", "o"),
    Option("parsable", "", FLAG),
    Option("partition", "p"),
    Option("signal"),
    Option("test-only", "", FLAG),
    Option("time", "t"),
    Option("version", "V", FLAG),
    Option("wait", "W", FLAG),
    Option("wrap"),
    # what holds here anyway
    Option("kill-on-invalid-dep", "", REQUIRED, NOTHING),
    Option("no-requeue", "", FLAG, NOTHING),
    Option("quiet", "Q", FLAG, NOTHING),
    Option("verbose", "v", FLAG, NOTHING),
    *_nothing("get-user-env", value=OPTIONAL),
    *_nothing("ignore-pbs", "use-min-nodes", "spread-job", "contiguous", "usage"),
    Option("no-kill", "k", OPTIONAL, NOTHING),
    Option("overcommit", "O", FLAG, NOTHING),
    Option("wait-all-nodes", "", REQUIRED, NOTHING),
    # what would be wrong to leave out
    Option("begin", "b", REQUIRED, REFUSED, "a job cannot be held until a time; submit it then"),
    Option("hold", "H", FLAG, REFUSED, "a command cannot be held; submit it when it may start"),
    Option("gpus-per-socket", "", REQUIRED, REFUSED, "sockets are not counted here; give --gpus"),
    Option("nodefile", "F", REQUIRED, REFUSED, "name the hosts with --nodelist"),
    Option("container", "", REQUIRED, REFUSED, "name an image instead: --config environment.image=NAME"),
    # what is lost
    Option("cpus-per-gpu", "", REQUIRED, LOST, "cores are not reserved; the job is told the value"),
    Option("requeue", "", FLAG, LOST, "a job is never stopped for others; for `scontrol requeue` give --requeues"),
    Option("account", "A", REQUIRED, LOST, _ACCOUNTING),
    Option("qos", "q", REQUIRED, LOST, _ACCOUNTING),
    Option("licenses", "L", REQUIRED, LOST, _ACCOUNTING),
    *_lost(_ACCOUNTING, "wckey", "mcs-label", "acctg-freq", "profile"),
    Option("constraint", "C", REQUIRED, LOST, f"hosts have no features; {_FOLDERS}"),
    *_lost(f"hosts have no features; {_FOLDERS}", "prefer", "batch", "cluster-constraint", "switches"),
    Option("clusters", "M", REQUIRED, LOST, "there is one server; -m before sbatch names another"),
    Option("reservation", "", REQUIRED, LOST, "a window of a pool reserves hosts for a group (docs/queue.md)"),
    Option("exclusive", "", OPTIONAL, LOST, "other jobs may run on the host; to have it alone, ask for all its GPUs"),
    Option("oversubscribe", "s", FLAG, LOST, "a slot belongs to one job at a time"),
    Option("deadline", "", REQUIRED, LOST, "give --time, which limits the run itself"),
    Option("time-min", "", REQUIRED, LOST, "the limit of --time is not shortened"),
    Option("mem", "", REQUIRED, LOST, _MEMORY),
    Option("mem-per-cpu", "", REQUIRED, LOST, _MEMORY),
    Option("mem-per-gpu", "", REQUIRED, LOST, _MEMORY),
    *_lost("disk space is not reserved", "tmp", "bb", "bbf"),
    *_lost(_MAIL, "mail-type", "mail-user"),
    Option("priority", "", REQUIRED, LOST, "Slurm's numbers have another scale; give --config resources.priority=N, "
           "from 1 (first) to 99"),
    Option("export-file", "", REQUIRED, LOST, "name the variables in --export"),
    *_lost(_PRIVILEGED, "uid", "gid"),
    *_lost("the limits of the account on the host hold", "propagate", value=OPTIONAL),
    Option("core-spec", "S", REQUIRED, LOST, _TUNING),
    Option("distribution", "m", REQUIRED, LOST, _TUNING),
    Option("extra-node-info", "B", REQUIRED, LOST, _TUNING),
    Option("reboot", "", FLAG, LOST, "hosts are not rebooted for jobs"),
    *_lost(_TUNING, "cores-per-socket", "cpu-freq", "delay-boot", "gpu-bind", "gpu-freq", "gres-flags",
           "hint", "mem-bind", "mincpus", "network", "ntasks-per-core", "ntasks-per-socket", "power",
           "sockets-per-node", "thread-spec", "threads-per-core"),
)  # fmt: skip

#: Slurm's other names of the same thing
_OLDER = {
    "workdir": "chdir",
    "share": "oversubscribe",
    "tasks": "ntasks",
    "tasks-per-node": "ntasks-per-node",
}

#: what follows SBATCH_ in the variables that sbatch reads
_VARIABLES = (
    "ACCOUNT", "ACCTG_FREQ", "ARRAY_INX", "BATCH", "CLUSTERS", "CONSTRAINT", "CONTAINER", "CORE_SPEC", "CPUS_PER_GPU",
    "DEBUG", "DELAY_BOOT", "DISTRIBUTION", "ERROR", "EXCLUSIVE", "EXPORT", "GET_USER_ENV", "GPU_BIND", "GPU_FREQ",
    "GPUS", "GPUS_PER_NODE", "GPUS_PER_TASK", "GRES", "GRES_FLAGS", "HINT", "IGNORE_PBS", "INPUT", "JOB_NAME",
    "MEM_BIND", "MEM_PER_CPU", "MEM_PER_GPU", "MEM_PER_NODE", "NETWORK", "NO_KILL", "NO_REQUEUE", "OPEN_MODE", "OUTPUT",
    "OVERCOMMIT", "PARTITION", "POWER", "PROFILE", "QOS", "REQ_SWITCH", "REQUEUE", "RESERVATION", "SIGNAL",
    "SPREAD_JOB", "THREAD_SPEC", "THREADS_PER_CORE", "TIMELIMIT", "USE_MIN_NODES", "WAIT", "WAIT_ALL_NODES", "WCKEY",
)  # fmt: skip
_OTHER_NAMES = {
    "ARRAY_INX": "array",
    "DEBUG": "verbose",
    "MEM_PER_NODE": "mem",
    "REQ_SWITCH": "switches",
    "TIMELIMIT": "time",
}

Given = List[Tuple[Option, str]]


def parsed(
    words: Sequence[str], table: Sequence[Option] = SBATCH, program: str = "sbatch"
) -> Tuple[Given, List[str]]:
    """The options before the first word that is none, with their values, and the words from there on.

    As getopt_long does it: `--name=value`, `--name value`, any unique beginning of a name, `-N2`, `-N 2`, `-vQ`.
    """
    given: Given = []
    left = list(words)
    while left and left[0].startswith("-") and left[0] != "-":
        word = left.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            option = _long(name, table, program)
            if option.value == FLAG and equals:
                raise BadScript(f"--{option.name} takes no value; found {word!r}.")
            if option.value == REQUIRED and not equals:
                value = _next(left, f"--{option.name}")
            given.append((option, value))
        else:
            given += _short(word, left, table, program)
    return given, left


def _short(word: str, left: List[str], table: Sequence[Option], program: str) -> Given:
    """`-N2`, `-N 2`, or several letters of which the last may take a value."""
    found: Given = []
    letters = word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        option = next((each for each in table if each.short == letter), None)
        if option is None:
            raise BadScript(f"{program} has no option -{letter}.")
        if option.value == FLAG:
            found.append((option, ""))
            continue
        value = letters if letters or option.value == OPTIONAL else _next(left, f"-{letter}")
        found.append((option, value[1:] if value.startswith("=") else value))
        break
    return found


def _long(name: str, table: Sequence[Option], program: str) -> Option:
    known: Dict[str, Option] = {each.name: each for each in table}
    known.update((older, known[new]) for older, new in _OLDER.items() if new in known)
    if name in known:
        return known[name]
    begun = sorted(each for each in known if name and each.startswith(name))
    if len({known[each].name for each in begun}) == 1:
        return known[begun[0]]
    if begun:
        raise BadScript(f"--{name} is ambiguous: {', '.join(f'--{each}' for each in begun)}.")
    raise BadScript(f"{program} has no option --{name}.")


def _next(left: List[str], shown: str) -> str:
    if not left:
        raise BadScript(f"{shown} needs a value.")
    return left.pop(0)


def of_environment(environment: Mapping[str, str]) -> Given:
    """What the variables SBATCH_… set. A flag is set by an empty value, `yes`, or a number other than 0."""
    given: Given = []
    for variable in _VARIABLES:
        value = environment.get(f"SBATCH_{variable}")
        option = by_name(_OTHER_NAMES.get(variable) or variable.lower().replace("_", "-"))
        if value is None:
            continue
        if option.value != FLAG:
            given.append((option, value))
        elif value in ("", "yes") or (value.isdecimal() and int(value)):
            given.append((option, ""))
    return given


def merged(*sources: Given) -> Dict[str, str]:
    """Name -> value; a later source wins, and within one the last. `config` keeps all, one on each line."""
    found: Dict[str, str] = {}
    for given in sources:
        for option, value in given:
            more = option.name == "config" and option.name in found
            found[option.name] = f"{found[option.name]}\n{value}" if more else value
    return found


def by_name(name: str) -> Option:
    return next(option for option in SBATCH if option.name == name)


def shown(name: str, value: str) -> str:
    """An option as people write it."""
    return f"--{name}={value}" if value else f"--{name}"


def remarks(given: Mapping[str, str]) -> List[str]:
    """A sentence about each option that is lost. Raises BadScript for one without which the job would be wrong."""
    found = []
    for name, value in given.items():
        option = by_name(name)
        if option.fate in (LOST, REFUSED):
            if option.fate == REFUSED:
                raise BadScript(f"{shown(name, value)}: {option.sentence}.")
            found.append(f"{shown(name, value)} is not taken over: {option.sentence}.")
    return found


def value_of(given: Mapping[str, str], name: str) -> Optional[str]:
    """The value, None if it was not given or is empty."""
    return given.get(name) or None


def name_of(given: Mapping[str, str], script: str) -> str:
    """The job's: as --job-name says it, else its script's."""
    return value_of(given, "job-name") or posixpath.basename(script) or "sbatch"
