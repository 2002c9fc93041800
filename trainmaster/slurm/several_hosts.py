"""The config of an experiment that starts on several hosts what a batch script starts there by srun (pure)."""

from __future__ import annotations

import json
import posixpath
import re
from itertools import takewhile
from typing import List, Mapping, NamedTuple, Optional, Sequence, Tuple

from trainmaster.slurm import amounts, options
from trainmaster.slurm.options import BadScript, name_of
from trainmaster.slurm.srun import TABLE

_LAUNCH = "python3 -m trainmaster.launch.torch_distributed"
_COMMAND = r"""\$\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|`[^`]*`"""
_WORD = re.compile(rf"""(?:{_COMMAND}|[^\s'"\\`]|\\.|'[^']*'|"(?:{_COMMAND}|(?!\$\()[^"\\`]|\\.)*")+""")
_WHOLE = re.compile(rf"{_COMMAND}|'[^']*'")
_QUOTED = re.compile(r"""'[^']*'|"[^"]*\"""")
#: before srun
_PREFIXES = ("exec", "time")
_SRUN = re.compile(r"(?<![^\s;&|])srun(?![^\s;&|])")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_PYTHON = re.compile(r"python[\d.]*")
_TORCH_MODULES = ("torch.distributed.run", "torch.distributed.launch")
#: options of torchrun without a value
_TORCH_FLAGS = ("standalone", "no-python", "run-path", "module", "use-env")
#: those that the launch module sets
_TORCH_SET = ("nnodes", "nproc-per-node", "node-rank", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf",
              "master-addr", "master-port", "standalone", "max-restarts", "use-env", "start-method")  # fmt: skip
_RANKS = "One rank is started for each slot, with RANK, LOCAL_RANK and WORLD_SIZE instead of SLURM_PROCID."
_ONCE = "This is started once on each host, where srun started it once for each task."
_UNREAD = (
    "Write the script that trains, and its arguments: what srun starts could not be told from this line: "
)
_NOT_FOUND = "No line with srun was found: write the script that trains, and its arguments."


class Launch(NamedTuple):
    """What a script starts on its hosts. `remark`: about the entrypoint; `other`: the script's other lines."""

    entrypoint: str
    remark: str
    other: List[str]


def config_of(
    given: Mapping[str, str],
    script: str,
    text: str,
    pool: str,
    nodes: int,
    each: int,
    depends_on: Sequence[str] = (),
) -> str:
    """The config as YAML; comments say what is left to be checked. `each`: slots of each host."""
    found = launch_of(text)
    seconds = amounts.seconds(given["time"]) if "time" in given else None
    lines = [
        f"# Written by `trainmaster sbatch` from {script or 'standard input'}. Check it, save it, and run",
        "# `trainmaster experiment create FILE .` in the folder of the code, which is sent to every host.",
        f"name: {json.dumps(name_of(given, script))}",
        f"# {found.remark}",
        f"entrypoint: {json.dumps(found.entrypoint)}",
        "hyperparameters: {}",
        *([f"depends_on: {json.dumps(depends_on)}"] if depends_on else []),
        "max_restarts: 0",
        "searcher: {name: single, metric: loss, max_length: {batches: 1}}",
        "resources:",
        *([f"  resource_pool: {json.dumps(pool)}"] if pool else []),
        f"  # {each} on each of {nodes} hosts. What does not fit on one host takes whole hosts of one size.",
        f"  slots_per_trial: {nodes * each}",
        *([f"  max_time: {seconds}"] if seconds else []),
    ]
    if found.other:
        lines += [
            "# The script has these lines as well. What the hosts need of them goes into a file startup-hook.sh in the",
            "# folder of the code, which each host runs first (docs/launching.md):",
            *(f"#   {line}" for line in found.other),
        ]
    return "\n".join([*lines, ""])


def launch_of(text: str) -> Launch:
    """What srun starts, as a launch module starts it: by the first line with torchrun or Python, or else the first."""
    lines = _lines(text)
    found: List[Launch] = []
    unread: List[Launch] = []
    for at, line in enumerate(lines):
        started = _started(_WORD.findall(line))
        if started is not None:
            entrypoint, remark = _entrypoint(*started)
            found.append(Launch(entrypoint, remark, [*lines[:at], *lines[at + 1 :]]))
        elif _SRUN.search(_QUOTED.sub("", line)):
            unread.append(Launch(f"{_LAUNCH} train.py", _UNREAD + line, lines))
    trains = [launch for launch in found if launch.remark == _RANKS]
    return (trains or unread or found or [Launch(f"{_LAUNCH} train.py", _NOT_FOUND, lines)])[0]


def _lines(text: str) -> List[str]:
    """The commands, each on one line, without comments."""
    joined = re.sub(r"[ \t]*\\\n[ \t]*", " ", text)
    return [
        line.strip() for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]


def _started(words: List[str]) -> Optional[Tuple[List[str], List[str]]]:
    """The variables that a line sets for srun and the words that srun starts; None of another line."""
    words = words[:-1] if words[-1:] == ["&"] else words
    before = list(takewhile(lambda word: word in _PREFIXES or _ASSIGNED.fullmatch(word), words))
    count = len(before)
    if words[count : count + 1] != ["srun"] or any(map(_is_cut, words)):
        return None
    try:
        command = options.parsed(words[count + 1 :], TABLE, "srun")[1]
    except BadScript:
        return None
    return ([word for word in before if word not in _PREFIXES], command) if command else None


def _is_cut(word: str) -> bool:
    """Whether it begins or ends within $(...): commands in commands, deeper than `_WORD` reads them."""
    return "$(" in _WHOLE.sub("", word)


def _entrypoint(variables: List[str], command: List[str]) -> Tuple[str, str]:
    program, rest = posixpath.basename(command[0]), command[1:]
    if _PYTHON.fullmatch(program):
        while rest[:1] in (["-u"], ["-O"], ["-B"]):
            rest = rest[1:]
        if rest[:1] == ["-m"] and rest[1:2] and rest[1] in _TORCH_MODULES:
            program, rest = "torchrun", rest[2:]
        elif rest and (not rest[0].startswith("-") or (rest[0] == "-m" and rest[1:])):
            return " ".join([*variables, _LAUNCH, *rest]), _RANKS
    if program == "torchrun":
        kept, script = _of_torchrun(rest)
        if script:
            return " ".join([*variables, _LAUNCH, *([*kept, "--"] if kept else []), *script]), _RANKS
    return " ".join([*variables, *command]), _ONCE


def _of_torchrun(words: List[str]) -> Tuple[List[str], List[str]]:
    """The options of torchrun that the launch module does not set, and the script with its arguments."""
    kept: List[str] = []
    left = list(words)
    is_module = False
    while left and left[0].startswith("-"):
        word = left.pop(0)
        name = word.lstrip("-").partition("=")[0].replace("_", "-")
        whole = [word]
        if "=" not in word and name not in _TORCH_FLAGS and word != "-m" and left:
            whole.append(left.pop(0))
        if word in ("-m", "--module"):
            is_module = True
        elif name not in (*_TORCH_SET, "no-python"):
            kept += whole
    return kept, ["-m", *left] if is_module and left else left
