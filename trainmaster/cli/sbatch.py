"""`sbatch`: a batch script written for Slurm becomes a command, or an array of commands, of any pool."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import sys
import textwrap
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from trainmaster import __version__
from trainmaster.cli import array
from trainmaster.cli.arguments import Adder
from trainmaster.cli.command import wait_end
from trainmaster.cli.errors import FAILED, OK, USAGE, CliError, UsageError
from trainmaster.cli.output import SHORT_ID, Bar, say, say_notices
from trainmaster.cli.session import log_in
from trainmaster.cli.submission import packed
from trainmaster.cli.task_verbs import COMMAND, say_on_interrupt
from trainmaster.client import Client, Json
from trainmaster.context import made
from trainmaster.overrides import BadOverride, apply_overrides
from trainmaster.slurm import exports, options, script, several_hosts, variables
from trainmaster.slurm.amounts import EACH, Need, dependencies
from trainmaster.slurm.handed import FOLDER, JOB, SCRIPT
from trainmaster.slurm.options import BadScript
from trainmaster.slurm.translate import (
    Place,
    Pool,
    SeveralHosts,
    Translated,
    described,
    needs_gpus,
    partitions,
    slots_of,
    translated,
)

_HELP = """\
usage: trainmaster sbatch [OPTIONS] SCRIPT [ARGS...]
       trainmaster sbatch [OPTIONS] --wrap COMMAND

Submit a batch script written for Slurm. Options are those of sbatch, on the command line, in variables SBATCH_..., and
in the #SBATCH lines before the script's first command, in this order. A sentence says what could not be taken over.

Options of Trainmaster:
  --context DIR       run the script in a copy of this folder, for hosts that do not share the folder of the submission
  --config KEY=VALUE  set a field of the command's config, such as resources.priority=10; repeatable
  --requeues N        start the script again, up to N times, if it calls `scontrol requeue`; --time limits each start
  --strict            refuse the script if anything of it could not be taken over
"""
_TEXT = {
    options.TAKEN: "Taken over",
    options.NOTHING: "Without effect here",
    options.LOST: "Not taken over, with a sentence",
    options.REFUSED: "Refused, with a sentence",
}
_WIDTH = 100
_WHOLE_ID = 36  # characters


def add(add_noun: Adder) -> None:
    # no word is an option of argparse's: sbatch reads them as Slurm does
    text = "submit a batch script written for Slurm"
    own = {"add_help": False, "prefix_chars": "\0"}
    parser = add_noun("sbatch", help=text, run_alone=_sbatch, action="submit the script", **own)
    parser.add_argument("words", nargs=argparse.REMAINDER)


def _sbatch(args: argparse.Namespace) -> int:
    try:
        return _submit(args)
    except BadScript as error:
        raise UsageError(str(error)) from error


def _submit(args: argparse.Namespace) -> int:
    given, rest = options.parsed(args.words)
    line = options.merged(given)
    if "help" in line:
        print(_help())
        return OK
    if "version" in line:
        print(f"trainmaster {__version__}")
        return OK
    text, place = _script(line, rest)
    merged = options.merged(
        script.directives(text, place.script or "the script"), options.of_environment(os.environ), given
    )
    client = log_in(args)
    pool = _pool(client, merged)
    try:
        found = translated(merged, place, pool, _exported(merged))
    except SeveralHosts as error:
        if "parsable" not in merged:
            _show_experiment(client, merged, text, place, pool, error)
        raise
    for remark in found.remarks:
        say(f"sbatch: {remark}", "yellow")
    if found.remarks and "strict" in merged:
        say("sbatch: nothing was submitted, because of --strict.", "red")
        return USAGE
    config = _config(client, merged, found)
    if "test-only" in merged:
        return _tried(client, config)
    files = [*packed(_context(merged), []), *_handed(text, found)]
    with Bar("Sending") as bar:
        answer = dict(client.upload(COMMAND.path, {"config": config, "files": files}, bar))
    say_notices(answer)
    return _submitted(client, args, merged, answer["command"])


def _show_experiment(
    client: Client, merged: Mapping[str, str], text: str, place: Place, pool: Pool, found: SeveralHosts
) -> None:
    """Print what is to be submitted in the place of a script for several hosts."""
    size, remarks = found.size, found.remarks
    each = max(1, -(-slots_of(merged, size, pool, remarks) // size.nodes))
    needs, singleton = dependencies(merged.get("dependency", ""))
    waits = _waits(
        client, needs, options.name_of(merged, place.script) if singleton else None, is_array=False
    )
    config = several_hosts.config_of(merged, place.script, text, pool.name, size.nodes, each, waits)
    for remark in remarks:
        say(f"sbatch: {remark}", "yellow")
    print(config, end="", flush=True)
    say(
        "sbatch: the config on standard output does this as an experiment. Save it (sbatch … > experiment.yaml), check "
        "it, and submit it: trainmaster experiment create experiment.yaml .",
        "yellow",
    )


def _script(line: Mapping[str, str], rest: List[str]) -> Tuple[str, Place]:
    """The script's text, and where it is submitted from. Raises BadScript, CliError."""
    here, host = os.getcwd(), socket.gethostname()  # noqa: PTH109  # as the shell names it below
    here = os.environ["PWD"] if _is_here(os.environ.get("PWD", "")) else here
    if "wrap" in line:
        if rest:
            raise BadScript(f"--wrap takes the place of a script; found {rest[0]!r} beside it.")
        return script.wrapped(line["wrap"]), Place(here, host, "wrap", [])
    if not rest:
        text = sys.stdin.read()
        return script.checked(text, "standard input"), Place(here, host, "", [])
    path = _found(rest[0], "" if "context" in line else line.get("chdir", ""))
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CliError(f"the script {rest[0]} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise CliError(
            f"the script {rest[0]} is not UTF-8 text: {error.reason} at byte {error.start}."
        ) from error
    return script.checked(text, rest[0]), Place(here, host, rest[0], rest[1:])


def _found(name: str, folder: str) -> Path:
    """The script's file: in the folder of --chdir, here, or along PATH, as sbatch looks for it."""
    for path in (Path(folder, name), Path(name)):
        if path.exists():
            return path
    return Path(shutil.which(name) or name)


def _is_here(folder: str) -> bool:
    """Whether this is a name of the current folder: of several, other machines may know the one of the shell alone."""
    try:
        return bool(folder) and Path(folder).samefile(".")
    except OSError:
        return False


def _exported(merged: Mapping[str, str]) -> exports.Exported:
    found = exports.exported(merged.get("export"), os.environ, "context" not in merged)
    for names, why in (
        (found.secrets, "since these suggest secrets: {}. To pass one, name it in --export."),
        (found.functions, "since these are functions of this shell: {}. Define them in the script."),
        (found.folders, "since these name folders of this machine: {}. To pass one, name it in --export."),
    ):
        if names:
            say(f"sbatch: not passed on, {why.format(', '.join(names))}")
    return found


def _pool(client: Client, merged: Mapping[str, str]) -> Pool:
    """The pool that the job goes to. Raises BadScript if the one of --partition does not exist."""
    row = pool_of(client.resource_pools(), merged)
    if row is None:
        return Pool("", "", 50, [])
    hosts = client.hosts() if "exclude" in merged else []
    names = [each["name"] for each in hosts if each["pool"] == row["name"]]
    return Pool(row["name"], row["slotType"], int(row["defaultPriority"]), names)


def pool_of(rows: List[Json], merged: Mapping[str, str]) -> Optional[Json]:
    """The pool of --partition, of several the first; without it, the default one (pure). Raises BadScript.

    As on the server, what needs no GPU goes to the default pool for auxiliary work.
    """
    wanted = partitions(merged)[0]
    default = "defaultComputePool" if needs_gpus(merged) else "defaultAuxPool"
    for row in rows:
        if row["name"] == wanted or (not wanted and row[default]):
            return row
    if wanted:
        raise BadScript(f"--partition is {wanted!r}, allowed: {', '.join(row['name'] for row in rows)}.")
    return None


def _config(client: Client, merged: Mapping[str, str], found: Translated) -> Json:
    """The command's config with what it waits for, and with --config on top. Raises CliError."""
    config: Json = dict(found.config)
    namesakes = config["description"] if found.singleton else None
    if waits := _waits(client, found.needs, namesakes, is_array="array" in config):
        config["depends_on"] = waits
    try:
        return apply_overrides(config, merged["config"].split("\n")) if "config" in merged else config
    except BadOverride as error:
        raise UsageError(f"{error}.") from error


def _waits(client: Client, needs: Sequence[Need], namesakes: Optional[str], *, is_array: bool) -> List[str]:
    """What depends_on names; `namesakes`: the name whose jobs are waited for as well. Raises CliError."""
    waits = [_resolved(client, need, is_array=is_array) for need in needs]
    waits += [] if namesakes is None else _namesakes(client, namesakes)
    return list(dict.fromkeys(waits))


def _resolved(client: Client, need: Need, *, is_array: bool) -> str:
    """As depends_on names it: a number is an experiment's, all else an ID or the beginning of a command's.

    As in Slurm, what is not an array waits for the success of all, and so does an array for what is not one.
    """
    job = _own_id(need.job)
    condition = "success" if need.condition == EACH else need.condition
    is_each = need.condition == EACH and is_array and need.element is None
    if job.isdecimal() and len(job) < SHORT_ID:
        return f"{job}:{condition}"
    if len(job) == _WHOLE_ID and need.element is None and not is_each:
        return f"{job}:{condition}"
    record = COMMAND.record(client, job)
    whole = record.get("array") or {}
    if need.element is None:
        names_array = str(whole.get("id", "")).startswith(job)
        return (
            f"{whole['id'] if names_array else record['id']}:{EACH if names_array and is_each else condition}"
        )
    rows = client.pages(COMMAND.path, "commands", [("arrayId", whole["id"])]) if whole else []
    for row in rows:
        if row["arrayIndex"] == need.element:
            return f"{row['id']}:{condition}"
    raise CliError(f"--dependency: {need.job} has no element {need.element}.")


def _own_id(job: str) -> str:
    """The ID of the job, or array, in which this is called, where it is named as its script knows it; else as it is."""
    for number, name in (("SLURM_JOB_ID", variables.ID), ("SLURM_ARRAY_JOB_ID", variables.ARRAY_ID)):
        if job == os.environ.get(number) and os.environ.get(name):
            return os.environ[name]
    return job


def _namesakes(client: Client, name: str) -> List[str]:
    """What --dependency=singleton waits for: the user's jobs of this name in the queues of all pools."""
    user = str(client.me()["username"])
    rows = [row for pool in client.resource_pools() for row in client.job_queue(pool["name"], user=user)]
    return [f"{row['jobId']}:end" for row in rows if row.get("name") == name]


def _context(merged: Mapping[str, str]) -> Optional[Path]:
    return Path(merged["context"]) if "context" in merged else None


def _handed(text: str, found: Translated) -> List[Json]:
    """The script and what is said about it, in a folder of their own."""
    return [
        {**made(FOLDER, b""), "type": ord("5"), "mode": 0o700},
        made(SCRIPT, text.encode()),
        made(JOB, json.dumps(found.job).encode()),
    ]


def _tried(client: Client, config: Json) -> int:
    answer = client.post(COMMAND.path, {"config": config, "preview": True})
    say_notices(answer)
    print(f"sbatch: would submit {described(config)}")
    return OK


def _submitted(client: Client, args: argparse.Namespace, merged: Mapping[str, str], record: Json) -> int:
    """Print its ID, as sbatch does, and wait for it if asked to."""
    whole = record.get("array")
    job_id = str(whole["id"] if whole else record["id"])
    print(job_id if "parsable" in merged else f"Submitted batch job {job_id}", flush=True)
    if "wait" not in merged:
        return OK
    if whole:
        return array.wait(client, args, job_id)
    return _wait(client, args, job_id)


def _wait(client: Client, args: argparse.Namespace, job_id: str) -> int:
    say_on_interrupt(args, COMMAND, job_id)
    record = wait_end(client, job_id)
    if record["phase"] == "COMPLETED":
        return OK
    say(f"sbatch: job {job_id[:SHORT_ID]}: {record.get('ending') or record['phase'].lower()}.", "red")
    return int(record.get("exitCode") or FAILED)


def _help() -> str:
    lines = [_HELP]
    by_fate: Dict[str, List[str]] = {}
    for option in options.SBATCH:
        if option.name not in ("context", "config", "requeues", "strict"):
            by_fate.setdefault(option.fate, []).append(
                f"--{option.name}" + (f" (-{option.short})" if option.short else "")
            )
    for fate, title in _TEXT.items():
        lines.append(f"{title}:\n{_filled(by_fate.get(fate, []))}\n")
    return "\n".join([*lines, "What becomes of each: docs/slurm.md."])


def _filled(words: List[Any]) -> str:
    return textwrap.fill(
        ", ".join(words), _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )
