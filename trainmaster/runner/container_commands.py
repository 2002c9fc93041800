"""The command lines by which podman, docker and apptainer run a job in an image. Pure: facts in, words out.

No value of a variable is among the words, for everybody on the host may read those: variables are passed by name from
the environment of the program, or under another name where it wants that (apptainer).
"""

from __future__ import annotations

import csv
import io
import posixpath
import re
from typing import Dict, List, Mapping, NamedTuple, Sequence

from trainmaster.protocol import CONTAINER_MARKER, Container, ContainerMount

#: what a host has for itself: passed only where the config names it. An image has its own programs and libraries.
_OF_THE_HOST = re.compile(
    r"PATH|HOME|SHELL|PWD|OLDPWD|SHLVL|_|TMPDIR|LC_CTYPE|LD_LIBRARY_PATH|LIBRARY_PATH|CPATH|MODULEPATH|XDG_\w+"
    r"|(CUDA|NVIDIA|ROCM|HIP)_\w+|HF_\w+|TORCH_HOME"
)
#: how the runtimes themselves are set up on a host; the launcher hands these to them, and they to nobody
OF_RUNTIMES = re.compile(r"(DOCKER|CONTAINERS?|REGISTRY|REGISTRIES|APPTAINER|SINGULARITY|APPTAINERENV)_\w+")
_ALWAYS = {"CUDA_VISIBLE_DEVICES"}
_SAME_NUMBERS = ["--pid", "host"]
#: before the words, where process numbers are not the host's: the kernel drops signals that number 1 does not handle
_FIRST = ("sh", "-c", '"$@"; exit "$?"', "sh")


class Inside(NamedTuple):
    """What a container is to have of its host. Folders are absolute and the same inside; `variables` are names."""

    name: str
    key: str
    run: str
    home: str
    code: str
    bundle: str
    variables: Sequence[str]
    uid: int
    gid: int
    groups: Sequence[int]
    gpus: Sequence[str]
    folders: Sequence[str] = ()
    #: it must stay among the processes of a Slurm job, which end with it
    of_slurm: bool = False


def passed_names(environment: Mapping[str, str], configured: Mapping[str, str]) -> List[str]:
    """Names of the job's `environment` that hold inside, sorted; `configured` are the config's own variables."""
    return sorted(
        name
        for name in environment
        if name in configured
        or name in _ALWAYS
        or not (_OF_THE_HOST.fullmatch(name) or OF_RUNTIMES.fullmatch(name))
    )


def run_command(
    runtime: str, program: str, container: Container, inside: Inside, words: Sequence[str]
) -> List[str]:
    """The words that run `words` in the image by `runtime` (podman, docker, apptainer), which is at `program`."""
    if runtime == "apptainer":
        return [program, *_apptainer(container, inside), *words]
    own = _podman(container, inside) if runtime == "podman" else _docker(container, inside)
    if runtime == "podman" and inside.of_slurm:
        words = [*_FIRST, *words]
    # in the place of the image's own entrypoint
    started = ["--entrypoint", words[0], container["image"], *words[1:]]
    return [program, "run", *_alike(container, inside), *own, *started]


def exists_command(runtime: str, program: str, image: str) -> List[str]:
    """Ends with 0 where the host has the image already."""
    return [program, "image", "exists" if runtime == "podman" else "inspect", image]


def pull_command(runtime: str, program: str, image: str, auth: str, into: str) -> List[str]:
    """Fetches the image. `auth` is the login's file (docker: its folder), empty without; `into` is for apptainer."""
    if runtime == "apptainer":
        return [program, "pull", "--force", into, apptainer_source(image)]
    if runtime == "podman":
        return [program, "pull", *(["--authfile", auth] if auth else []), image]
    return [program, *(["--config", auth] if auth else []), "pull", image]


def remove_command(runtime: str, program: str, name: str) -> List[str]:
    """Ends what is left of the container; apptainer leaves nothing but processes."""
    if runtime == "apptainer":
        return []
    return [program, "rm", "--force", *(["--ignore", "--time", "0"] if runtime == "podman" else []), name]


def client_environment(runtime: str, environment: Mapping[str, str], inside: Inside) -> Dict[str, str]:
    """The environment of the runtime's own program: apptainer takes a container's variables under another name."""
    found = dict(environment)
    if runtime == "apptainer":
        found.update({f"APPTAINERENV_{name}": environment[name] for name in inside.variables})
        found[f"APPTAINERENV_{CONTAINER_MARKER}"] = inside.key
    return found


def apptainer_source(image: str) -> str:
    """A name as Docker has it means a registry's; a file, an unpacked folder or an address is taken as it is."""
    return image if "://" in image or image.startswith("/") else f"docker://{image}"


def _alike(container: Container, inside: Inside) -> List[str]:
    """What podman and docker call by the same names.

    The host sees their processes, mostly by the numbers that they have inside: so they are signalled as others are.
    """
    words = ["--rm", "--name", inside.name, "--pull", "never", "--network", "host"]
    size = container.get("shm_size")
    words += ["--shm-size", str(size)] if size else ["--ipc", "host"]
    words += ["--security-opt", "label=disable", "--workdir", inside.code]
    words += ["--user", f"{inside.uid}:{inside.gid}"]
    for device in container.get("devices") or []:
        words += ["--device", f"{device['host_path']}:{device['container_path']}:{_mode(device['mode'])}"]
    for option, names in (("--cap-add", "add_capabilities"), ("--cap-drop", "drop_capabilities")):
        for name in container.get(names) or []:  # type: ignore[attr-defined]  # both are lists of words
            words += [option, str(name)]
    words += ["--env", f"HOME={inside.home}", "--env", f"{CONTAINER_MARKER}={inside.key}"]
    for name in inside.variables:
        if name != "HOME":
            words += ["--env", name]
    return words


def _podman(container: Container, inside: Inside) -> List[str]:
    words = ["--log-driver", "passthrough"]  # straight to the spool: nothing is lost if podman is killed
    # podman makes no container without a cgroup of its own that has not its own process numbers either
    words += ["--cgroups", "disabled", "--pid", "private"] if inside.of_slurm else _SAME_NUMBERS
    words += [] if inside.uid == 0 else ["--userns", "keep-id", "--group-add", "keep-groups"]
    for mount in _all_mounts(container, inside):
        words += ["--volume", _volume(mount, inside.code)]
    for gpu in inside.gpus:
        words += ["--device", f"nvidia.com/gpu={gpu}"]
    return words


def _docker(container: Container, inside: Inside) -> List[str]:
    words = ["--log-driver", "none", *_SAME_NUMBERS]
    for mount in _all_mounts(container, inside):
        words += ["--mount", _mount(mount, inside.code)]
    for group in inside.groups:
        words += ["--group-add", str(group)]
    if inside.gpus:
        words += ["--gpus", _comma_separated([f"device={','.join(inside.gpus)}"])]
        # what nccl pins for InfiniBand; only a whole root may raise it
        words += ["--ulimit", "memlock=-1:-1"]
    return words


def _apptainer(container: Container, inside: Inside) -> List[str]:
    words = ["exec", "--cleanenv", "--no-mount", "tmp,cwd", "--home", inside.home, "--pwd", inside.code]
    words += ["--writable-tmpfs"]
    for mount in _all_mounts(container, inside):
        words += ["--bind", _bind(mount, inside.code)]
    for device in container.get("devices") or []:
        words += ["--bind", f"{device['host_path']}:{device['container_path']}"]
    for option, names in (
        ("--add-caps", container.get("add_capabilities")),
        ("--drop-caps", container.get("drop_capabilities")),
    ):
        words += [option, ",".join(names)] if names else []
    words += ["--nv"] if inside.gpus else []
    return [*words, container["image"]]


def _all_mounts(container: Container, inside: Inside) -> List[ContainerMount]:
    """The run's folder, which holds its code; its storage; Trainmaster, which is not to be written; the config's."""
    own = [_same_place(folder, False) for folder in (inside.run, *inside.folders)]
    return [*own, _same_place(inside.bundle, True), *(container.get("mounts") or [])]


def _same_place(folder: str, read_only: bool) -> ContainerMount:
    return {"host_path": folder, "container_path": folder, "read_only": read_only, "propagation": "rprivate"}


def _volume(mount: ContainerMount, code: str) -> str:
    options = f"{'ro' if mount['read_only'] else 'rw'},{mount['propagation']}"
    return f"{mount['host_path']}:{posixpath.join(code, mount['container_path'])}:{options}"


def _mount(mount: ContainerMount, code: str) -> str:
    """For docker, whose --volume would make a folder of root's where the host has none; --mount says so instead."""
    parts = [
        "type=bind",
        f"source={mount['host_path']}",
        f"target={posixpath.join(code, mount['container_path'])}",
        f"bind-propagation={mount['propagation']}",
    ]
    return _comma_separated([*parts, "readonly"] if mount["read_only"] else parts)


def _comma_separated(fields: Sequence[str]) -> str:
    """A line of comma-separated values, as docker reads some of its options."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def _bind(mount: ContainerMount, code: str) -> str:
    """apptainer has no propagation per mount: its own configuration says it for all."""
    path = posixpath.join(code, mount["container_path"])
    return f"{mount['host_path']}:{path}:{'ro' if mount['read_only'] else 'rw'}"


def _mode(mode: str) -> str:
    """In the order that the runtimes know: `mrw` and `rwm` are the same."""
    return "".join(letter for letter in "rwm" if letter in mode) or "rwm"
