"""Which options of sbatch a pool or a config may add to ours. Pure.

Those that are listed, and no others: sbatch takes an option also by its first letters, has aliases of some, and reads
several short ones in one word, so a list of what is refused would be one of what somebody has thought of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

Fault = str | None

_MOST = 64
_CHARACTERS_MOST = 1000
#: as `--NAME=VALUE`
_WITH_VALUE = frozenset(
    {
        "acctg-freq", "bb", "begin", "constraint", "core-spec", "cpu-freq", "cpus-per-gpu", "deadline", "delay-boot",
        "dependency", "distribution", "exclude", "exclusive", "gpu-bind", "gpu-freq", "gres-flags", "hint", "licenses",
        "mail-type", "mail-user", "mcs-label", "mem", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus", "network",
        "nice", "nodelist", "power", "prefer", "priority", "profile", "propagate", "reservation", "segment", "switches",
        "thread-spec", "threads-per-core", "tmp", "wckey",
    }
)  # fmt: skip
#: as `--NAME`
_FLAGS = frozenset(
    {"contiguous", "exclusive", "nice", "oversubscribe", "propagate", "reboot", "spread-job", "use-min-nodes"}
)
#: as `-X VALUE`, in one text or two
_SHORT = {
    "C": "constraint", "d": "dependency", "L": "licenses", "m": "distribution", "S": "core-spec", "w": "nodelist",
    "x": "exclude",
}  # fmt: skip
#: what an attempt cannot do without, and so says itself; each with what is for it here
_OWN = {
    "parsable": "", "requeue": "", "no-requeue": "", "signal": "", "comment": "", "wrap": "", "wait": "", "array": "",
    "test-only": "", "clusters": "", "job-name": "", "input": "", "output": "", "error": "", "chdir": "", "export": "",
    "export-file": "", "uid": "", "gid": "", "nodes": "slots", "ntasks": "slots", "ntasks-per-node": "slots",
    "cpus-per-task": "slots or --cpus-per-gpu", "gpus": "slots", "gpus-per-node": "slots", "gpus-per-task": "slots",
    "gres": "slots and the pool's gpu_type", "time": "resources.max_time", "partition": "the pool's partition",
    "account": "the pool's account", "qos": "the pool's qos",
}  # fmt: skip
_OWN_SHORT = {
    "a": "array", "J": "job-name", "i": "input", "o": "output", "e": "error", "D": "chdir", "W": "wait",
    "M": "clusters", "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "G": "gpus", "t": "time", "p": "partition",
    "A": "account", "q": "qos",
}  # fmt: skip
_ALLOWED = "allowed: options of sbatch by their whole names, each as one text, such as --constraint=a100"
_KNOWN = ", ".join(
    f"--{name}{'[=…]' if name in _FLAGS & _WITH_VALUE else '' if name in _FLAGS else '=…'}"
    for name in sorted(_FLAGS | _WITH_VALUE)
)


def fault(value: object) -> Fault:
    """What is wrong with arguments that sbatch gets besides ours."""
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        return f"found {value!r}; {_ALLOWED}"
    if len(value) > _MOST:
        return f"found {len(value)} texts; allowed: at most {_MOST}"
    return next(_faults(value), None)


def _faults(words: Sequence[str]) -> Iterator[str]:
    rest = iter(words)
    for word in rest:
        if not word.isprintable() or len(word) > _CHARACTERS_MOST:
            yield f"found {word[:80]!r}; {_ALLOWED}"
        elif word.startswith("--"):
            yield from _of_long(word)
        elif re.match(r"-[A-Za-z]", word):
            yield from _of_short(word, rest)
        else:
            yield f"found {word!r}; {_ALLOWED}"


def _of_long(word: str) -> Iterator[str]:
    name, equals, value = word[2:].partition("=")
    if name in _OWN:
        yield _set_already(word, name)
    elif name not in _FLAGS | _WITH_VALUE:
        begun = [own for own in _OWN if len(name) > 1 and own.startswith(name)]
        yield _set_already(word, begun[0]) if begun else f"found {word!r}; allowed: {_KNOWN}"
    elif equals and (not value or name not in _WITH_VALUE):
        yield f"found {word!r}; allowed: --{name}{' with a value' if name in _WITH_VALUE else ' without a value'}"
    elif not equals and name not in _FLAGS:
        yield f"found {word!r}; allowed: --{name}=VALUE, as one text"


def _of_short(word: str, rest: Iterator[str]) -> Iterator[str]:
    """`rest`: the words after it, of which it takes its value."""
    letter = word[1]
    if letter in _OWN_SHORT:
        yield _set_already(word, _OWN_SHORT[letter])
    elif letter not in _SHORT:
        yield f"found {word!r}; {_ALLOWED}"
    else:
        value = word[2:] or next(rest, "")
        if not value or value.startswith("-") or not value.isprintable() or len(value) > _CHARACTERS_MOST:
            yield f"found {word!r} without its value; allowed: --{_SHORT[letter]}=VALUE, as one text"


def _set_already(word: str, name: str) -> str:
    hint = f"; set {_OWN[name]} instead" if _OWN[name] else ""
    return f"{word!r} cannot be given, because Trainmaster sets --{name} itself{hint}"
