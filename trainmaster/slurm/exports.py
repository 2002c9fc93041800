"""--export: which variables of the shell that submits are passed to the job (pure)."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

from trainmaster.secret_words import suggests_secret, without_passwords
from trainmaster.slurm.options import BadScript

#: of the login, the terminal and this machine, and what the job gets from its own host
_OWN = re.compile(
    r"HOME|USER|LOGNAME|USERNAME|SHELL|PWD|OLDPWD|SHLVL|_|HOSTNAME|HOST|TMPDIR|MAIL|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY"
    r"|TERM|TERMCAP|TERMINFO|TERMINFO_DIRS|TERM_(PROGRAM|PROGRAM_VERSION|SESSION_ID)|COLORTERM|LS_COLORS|LINES|COLUMNS"
    r"|PS[0-4]|PROMPT[2-4]?|PROMPT_(COMMAND|DIRTRIM)|WINDOWID|STY|TMUX|BASH_ENV|ENV|KRB5CCNAME|NVIDIA_VISIBLE_DEVICES"
    r"|(CUDA|HIP|ROCR)_VISIBLE_DEVICES"
    r"|(SSH|XDG|DBUS|TMUX|VSCODE|GPG|KONSOLE|ITERM|VTE|DET|TRAINMASTER|SBATCH|SLURM|SLURMD|SUBMITIT)_\w*"
)
_FUNCTION = re.compile(r"BASH_FUNC_(.*?)(%%|\(\))?")
#: folders of this machine, which other machines have only if they share them
_FOLDERS = re.compile(
    r"(\w*_)?(PATH|PREFIX|PYTHONHOME|PYTHONPATH|VIRTUAL_ENV)|CONDA_\w+|\w*_HOME|\w*PATH|\w*_DIR|\w*_ROOT"
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_MOST_BYTES = 128 * 1024 - 1  # of one variable, as the kernel takes it


class Exported(NamedTuple):
    """`passed`: variables of the shell; `named`: those that --export names; the others are names that were left out.

    Of these, the login's and the terminal's own are not listed.
    """

    passed: Dict[str, str]
    named: Dict[str, str]
    secrets: List[str]
    functions: List[str]
    folders: List[str]


def exported(option: Optional[str], environment: Mapping[str, str], shares_folders: bool) -> Exported:
    """What --export (None: not given, as ALL) lets through. Raises BadScript."""
    passes_all, by_name = named(option or "ALL", environment)
    return _all(by_name, environment, shares_folders) if passes_all else Exported({}, by_name, [], [], [])


def named(option: str, environment: Mapping[str, str]) -> Tuple[bool, Dict[str, str]]:
    """Whether all variables are passed, and those that are named, with their values. Raises BadScript."""
    parts = _parts(option)
    words = {part.upper() for part in parts}
    if words & {"NONE", "NIL"}:
        if len(parts) > 1:
            raise BadScript(f"--export={option}: NONE stands alone.")
        return False, {}
    found: Dict[str, str] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if part.upper() == "ALL":
            continue
        if not _NAME.fullmatch(name):
            raise BadScript(f"--export={option}: {name!r} is not the name of a variable.")
        if equals:
            found[name] = value
        elif name in environment:
            found[name] = environment[name]
    return "ALL" in words, found


def _all(named: Dict[str, str], environment: Mapping[str, str], shares_folders: bool) -> Exported:
    found = Exported({}, named, [], [], [])
    for name, value in sorted(environment.items()):
        function = _FUNCTION.fullmatch(name)
        if name in named or _OWN.fullmatch(name):
            continue
        if function:
            found.functions.append(function[1])
        elif not _NAME.fullmatch(name) or len(name) + len(value.encode(errors="replace")) > _MOST_BYTES:
            continue
        elif suggests_secret(name) or without_passwords(value, "") != value:
            found.secrets.append(name)
        elif not shares_folders and _FOLDERS.fullmatch(name):
            found.folders.append(name)
        else:
            found.passed[name] = value
    return found


def _parts(option: str) -> List[str]:
    """Split at commas that are in no quotes, as Slurm does it."""
    parts = re.findall(r"(?:[^,'\"]|'[^']*'|\"[^\"]*\")+", option)
    return [re.sub(r"^([^=]*=)(['\"])(.*)\2$", r"\1\3", part.strip()) for part in parts if part.strip()]
