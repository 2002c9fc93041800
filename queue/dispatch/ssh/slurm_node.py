"""Verbs on nodes of a Slurm job, each by a short step of the job beside the one that runs there: `srun --overlap`.

That is how the folders of runs are reached in a cluster whose nodes share none with the login node. Slurm lets the
account in only while its job has the nodes, and only nodes where it runs are asked.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from dispatch.ssh import remote, slurm_login
from dispatch.ssh.contact_errors import RemoteError, Unreachable, VerbFailed
from dispatch.ssh.slurm_login import SlurmRefused
from hosts.models import Host
from jobs import feeding
from jobs.models import Member
from jobs.states import MemberState
from trainmaster import bounded_json
from trainmaster.bundle import host_command, installer_command
from trainmaster.own_folders import SHELL

#: of the words of srun: the step takes what the job has, and waits for no other step of it
_SHARED = ("--overlap", "--gres=none", "--mem=0", "--quiet", "--chdir=/", "--kill-on-bad-exit=0", "--label")
_TIMEOUT_SECONDS = 60.0
_BEGUN = {"begun": 1}
#: (number of the task, what it printed) in a line of srun, which ends each after 1,024 bytes and mixes those of nodes
_PIECE = re.compile(r"^ *(\d+): (.*)$", re.MULTILINE)


def verb(
    login: Host, job_id: str, nodes: Sequence[Host], name: str, payload: Mapping[str, Any], body: bytes = b"",
    timeout_seconds: float = _TIMEOUT_SECONDS,
) -> dict[str, Any]:  # fmt: skip
    """Have the verb done on all of these nodes; the answer, with the "runs" of all. Raises RemoteError.

    A node that lacks the current bundle gets it first. An error of srun's does not say what was done: `delivered`.
    All nodes get the same payload, in which "of_node" says by the node's name in Slurm which "runs" are its own.
    """
    sha256, stdin = remote.current_bundle().sha256, json.dumps(payload).encode() + b"\n" + body
    if lacking := [node for node in nodes if node.bundle_sha256 != sha256]:
        _push(login, job_id, lacking)
    workdir = nodes[0].workdir
    python, *rest = host_command(remote.python_of(login), workdir, sha256, name)
    bundles = f"{workdir.rstrip('/')}/bundle"
    own = shlex.join([f"{workdir}/.", bundles, f"{bundles}/{sha256}"])
    words = ["/bin/sh", "-c", f'{SHELL}; ours {own} || exit 1; exec "$@"', name, python, "-S", "-E", *rest]
    try:
        said = _step(login, job_id, nodes, words, stdin, timeout_seconds)
    except SlurmRefused as error:
        if not _lacks_bundle(error.said):
            raise Unreachable(str(error), delivered=True) from error
        Host.objects.filter(pk__in=[node.pk for node in nodes]).update(bundle_sha256="")
        raise Unreachable(f"A node has lost Trainmaster's programs, which it gets again: {error}") from error
    return _merged(name, said, len(nodes))


def of_runs(
    login: Host, name: str, runs: Mapping[str, Any], more: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Have the verb done for runs in open jobs, by a step of each job: {"runs": run key: answer}.

    `runs`: run key -> what is asked or ordered of it; `more` for all of them. Raises the RemoteError of a job, once all
    were asked; and Unreachable for a run that is not over, of which Slurm surely has no job any more.
    """
    attempts = {key.rpartition(".")[0] for key in runs}
    jobs = dict(feeding.not_over().filter(allocation__in=attempts).values_list("allocation", "job_id"))
    nodes: dict[str, dict[str, Host]] = defaultdict(dict)
    for member in Member.objects.filter(allocation__in=jobs).select_related("host"):
        if member.run_key in runs:
            nodes[member.allocation_id][member.run_key] = member.host
    answers: dict[str, Any] = {}
    failure: RemoteError | None = _without_job(runs, attempts - jobs.keys())
    for attempt, here in nodes.items():
        own = {node.address: {key: runs[key]} for key, node in here.items()}
        request = {"of_node": own, **(more or {})}
        try:
            found = verb(login, jobs[attempt], list(here.values()), name, request)["runs"]
        except RemoteError as error:
            failure = error
            continue
        # nodes of one job say nothing of another's
        answers |= {key: found[key] for key in here if key in found}
    if failure is not None:
        raise failure
    return {"runs": answers}


def _without_job(runs: Mapping[str, Any], attempts: set[str]) -> Unreachable | None:
    """What there is to say of the runs of these attempts, unless they have ended."""
    members = Member.objects.filter(allocation__in=attempts).exclude(state=MemberState.ENDED)
    left = sorted(member.run_key for member in members if member.run_key in runs)
    if not left:
        return None
    more = f" and {len(left) - 1} more" if len(left) > 1 else ""
    return Unreachable(f"Slurm has no job any more in which {left[0]}{more} could be reached.")


def _push(login: Host, job_id: str, nodes: Sequence[Host]) -> None:
    bundle = remote.current_bundle()
    python, *rest = installer_command(remote.python_of(login), nodes[0].workdir, bundle.sha256)
    words = [python, "-S", "-E", "-W", "ignore", *rest]
    try:
        _step(login, job_id, nodes, words, bundle.archive, remote.PUSH_TIMEOUT_SECONDS)
    except SlurmRefused as error:
        sentence = f"Trainmaster's programs could not be brought into {nodes[0].workdir} on a node: {error}"
        raise Unreachable(sentence) from error
    for node in nodes:
        node.bundle_sha256 = bundle.sha256
    Host.objects.filter(pk__in=[node.pk for node in nodes]).update(bundle_sha256=bundle.sha256)


def _step(
    login: Host, job_id: str, nodes: Sequence[Host], words: Sequence[str], stdin: bytes, timeout_seconds: float
) -> str:  # fmt: skip
    """What the step printed; its stdin goes to each node."""
    names = ",".join(node.address for node in nodes)
    where = (f"--nodelist={names}", f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}")
    srun = ["srun", f"--jobid={job_id}", *_SHARED, *where, *words]
    return slurm_login.ask(login, srun, stdin, timeout_seconds=timeout_seconds, ends=True)[0]


def _lacks_bundle(said: str) -> bool:
    """Whether somebody has removed it since, or put another in its place, so nothing was done."""
    return (
        "is not a folder of this account" in said
        or "can't open file" in said
        or "can't find '__main__' module" in said
    )


def _merged(name: str, said: str, nodes: int) -> dict[str, Any]:
    """One answer of those that the nodes gave. Raises VerbFailed with the first error of one, or if one is missing."""
    pieces: dict[str, list[str]] = defaultdict(list)
    for task, piece in _PIECE.findall(said):
        pieces[task].append(piece)
    answers = [found for found in map(_answer, pieces.values()) if found is not None]
    for answer in answers:
        if "error" in answer:
            code = str(answer["error"])
            raise VerbFailed(code, str(answer.get("message") or code), delivered=code == "broke")
    if len(answers) < nodes:
        sentence = f"The verb {name} had an answer from {len(answers)} of the {nodes} nodes that were asked."
        raise VerbFailed("broke", sentence, delivered=True)
    runs: dict[str, Any] = {}
    for answer in answers:
        found = answer.get("runs")
        runs |= (
            {key: run for key, run in found.items() if isinstance(run, dict)}
            if isinstance(found, dict)
            else {}
        )
    return {**answers[-1], "runs": runs}


def _answer(pieces: Sequence[str]) -> dict[str, Any] | None:
    """What a node said last, of the pieces into which srun cuts a long line; None if that is not whole."""
    for first in range(len(pieces)):
        with suppress(ValueError):
            found = bounded_json.loads("".join(pieces[first:]))
            if isinstance(found, dict) and found != _BEGUN:
                return found
    return None
