"""Times, numbers, lists of hosts and other values of Slurm's options (pure)."""

from __future__ import annotations

import re
import signal
from typing import List, Mapping, NamedTuple, Optional, Tuple

from trainmaster.slurm.options import BadScript

_ENDLESS = ("unlimited", "infinite", "-1", "0")
_MOST_HOSTS = 10_000


def seconds(text: str) -> Optional[int]:
    """--time: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]. None: no limit."""
    if text.lower() in _ENDLESS:
        return None
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdecimal() for part in parts) or (dash and not days.isdecimal()) or len(parts) > 3:
        raise BadScript(
            f"--time is {text!r}, allowed: minutes, minutes:seconds, hours:minutes:seconds, days-hours, "
            "days-hours:minutes or days-hours:minutes:seconds."
        )
    numbers = [int(part) for part in parts]
    if dash:  # from the hours on
        hours, minutes, rest = [*numbers, 0, 0][:3]
    elif len(numbers) == 3:
        hours, minutes, rest = numbers
    else:  # from the minutes on
        hours, (minutes, rest) = 0, [*numbers, 0][:2]
    found = ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + rest
    return found or None


def number(given: Mapping[str, str], name: str, least: int = 1) -> Optional[int]:
    """A whole number of an option, None if it is not given."""
    text = given.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < least:
        raise BadScript(f"--{name} is {text!r}, allowed: a whole number of {least} or more.")
    return int(text)


def fewest_nodes(text: str) -> int:
    """--nodes: `2`, `2-4` or `2,4`; the smallest number that is enough."""
    found = re.fullmatch(r"(\d+)([kKmM]?)(?:[-,:]\d.*)?", text)
    if found is None or not int(found[1]):
        raise BadScript(f"--nodes is {text!r}, allowed: a number such as 2, or a range such as 1-4.")
    return int(found[1]) * {"": 1, "k": 1024, "m": 1024 * 1024}[found[2].lower()]


def gpus(text: str, name: str) -> Tuple[int, str]:
    """(how many, type) of `4`, `a100:4`, or several of them separated by commas."""
    total, types = 0, []
    for part in text.split(","):
        kind, colon, count = part.rpartition(":")
        if not count.isdecimal():
            raise BadScript(
                f"--{name} is {text!r}, allowed: a number of GPUs such as 2, or a type and a number such as a100:2."
            )
        total += int(count)
        if colon:
            types.append(kind)
    return total, ",".join(types)


class Resources(NamedTuple):
    """What --gres asks for on each node."""

    gpus: int
    kind: str
    others: List[str]


def gres(text: str) -> Resources:
    """`gpu:2`, `gpu:a100:2`, `gpu`, `gpu:a100` (one), with others beside them."""
    total, kinds, others = 0, [], []
    for part in filter(None, re.sub(r"\([^)]*\)", "", text).split(",")):  # of which sockets does not matter
        name, *more = part.replace("=", ":").split(":")
        name = name[5:] if name.startswith("gres/") else name
        if name == "none":
            continue
        if name != "gpu":
            others.append(part)
            continue
        if more and more[-1].isdecimal():
            total += int(more.pop())
        elif len(more) < 2:
            total += 1
        else:
            raise BadScript(f"--gres is {text!r}, allowed: gpu:2, or a type and a number such as gpu:a100:2.")
        kinds += more[:1]
    return Resources(total, ",".join(kinds), others)


def hosts(text: str, name: str) -> List[str]:
    """The names of `gpu[1-3,07],login`."""
    found: List[str] = []
    for part in _parts(text):
        found += _expanded(part, name)
    if not found:
        raise BadScript(f"--{name} names no host.")
    return list(dict.fromkeys(found))


def _parts(text: str) -> List[str]:
    """Split at the commas that are in no brackets."""
    parts = re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text.replace(" ", ""))
    return [str(part) for part in parts]


def _expanded(part: str, name: str) -> List[str]:
    found = re.match(r"([^\[\]]*)\[([^\]]*)\](.*)", part)
    if found is None:
        return [part]
    begin, ranges, rest = found.groups()
    names: List[str] = []
    for each in ranges.split(","):
        low, dash, high = each.partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise BadScript(f"--{name} has {part!r}, allowed: names such as gpu1,gpu2 or gpu[1-4,07].")
        last = int(high) if dash else int(low)
        if last - int(low) >= _MOST_HOSTS:
            raise BadScript(f"--{name} has {part!r}, which is more than {_MOST_HOSTS:,} hosts.")
        names += [f"{begin}{value:0{len(low)}d}" for value in range(int(low), last + 1)]
    return [whole for each in names for whole in _expanded(each + rest, name)]


class Warned(NamedTuple):
    """--signal: the signal's number, how many seconds before the end, and whether only the script gets it."""

    number: int
    seconds: int
    script_only: bool


def warned(text: str) -> Warned:
    """`USR1`, `B:USR1@120`, `R:10@60`; 60 seconds if no time is given."""
    flags, _, rest = text.rpartition(":")
    word, at, time = rest.partition("@")
    if set(flags.upper()) - set("RB") or (at and not time.isdecimal()) or not word:
        raise BadScript(
            f"--signal is {text!r}, allowed: a signal such as USR1, or B:USR1@120 (seconds before the end)."
        )
    if word.isdecimal():
        which = int(word)
    else:
        name = word.upper() if word.upper().startswith("SIG") else f"SIG{word.upper()}"
        which = int(getattr(signal, name, 0))
    if not 0 < which < 65:
        raise BadScript(f"--signal is {text!r}: there is no signal {word}.")
    return Warned(which, int(time) if at else 60, "B" in flags.upper())


class Need(NamedTuple):
    """One job to wait for: its ID (with `_N` for one of an array), and "success", "end", "failure" or "each"."""

    job: str
    condition: str
    element: Optional[int] = None


#: each element of an array waits for the success of the same element of the other
EACH = "each"
_CONDITIONS = {
    "afterok": "success",
    "aftercorr": EACH,
    "afterany": "end",
    "afternotok": "failure",
}


def dependencies(text: str) -> Tuple[List[Need], bool]:
    """(jobs to wait for, whether `singleton` is among them). Raises BadScript for what has no equivalent."""
    if "?" in text:
        raise BadScript(
            f"--dependency={text}: a job waits for all of its dependencies here; `?` (any of them) does not exist."
        )
    needs: List[Need] = []
    singleton = False
    kind = "afterany"  # as in Slurm, where the type may be left out
    for part in filter(None, text.split(",")):
        if part.lower() == "singleton":
            singleton = True
            continue
        first, *ids = part.split(":")
        if ids or not re.match(r"[0-9a-f]", first, re.IGNORECASE) or first.lower() in _CONDITIONS:
            kind = first.lower()
        else:
            ids = [first]
        if kind not in _CONDITIONS:
            raise BadScript(
                f"--dependency={text}: {kind!r} does not exist here, allowed: afterok, afterany, "
                "afternotok, aftercorr, singleton."
            )
        if not ids:
            raise BadScript(f"--dependency={text}: {part!r} names no job, allowed: such as {kind}:3f2a01bc.")
        needs += [_need(each, _CONDITIONS[kind], text) for each in ids]
    return needs, singleton


def _need(job: str, condition: str, text: str) -> Need:
    found = re.fullmatch(r"([0-9a-fA-F-]+)(?:_(\d+))?", job)
    if found is None:
        raise BadScript(
            f"--dependency={text}: {job!r} is not the ID of a job, such as 3f2a01bc, or an experiment's number."
        )
    return Need(found[1].lower(), condition, None if found[2] is None else int(found[2]))


def megabytes(text: str) -> int:
    """--mem: a number of MiB, or with one of the units K, M, G and T."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgtKMGT]?)[bB]?", text.strip())
    if found is None:
        raise BadScript(f"{text!r} is not a size of memory, allowed: a number of MiB, or such as 16G.")
    return int(
        float(found[1]) * {"k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1024 * 1024}[found[2].lower()]
    )


def step_of(array: str) -> int:
    """The step of --array as SLURM_ARRAY_TASK_STEP has it: 1 unless it is one range with a step."""
    found = re.fullmatch(r"\d+-\d+:(\d+)(?:%\d+)?", array.strip())
    return int(found[1]) if found else 1


def file_name(pattern: str, symbols: Mapping[str, str]) -> str:
    """A file name with %j and the others replaced; `%4j` fills numbers up with zeros; `\\\\` leaves all as it is."""
    if "\\" in pattern:
        return pattern.replace("\\", "")

    def replaced(found: "re.Match[str]") -> str:
        if found[2] == "%":
            return "%"
        value = symbols.get(found[2])
        if value is None:
            return found[0]
        return value.zfill(int(found[1])) if found[1] and value.isdecimal() else value

    return re.sub(r"%(\d*)([%AaJjNnstux])", replaced, pattern)
