"""The entrypoint of a run in an image: fetches the image, then becomes the program that runs the job in it.

`python3 -m trainmaster.runner.in_container WORD …` in the environment of the job. It is the process whose end is the
run's, so a stop reaches it while it still fetches. What keeps the container from starting is noted, so that it is not
taken for a failure of the training code.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, NoReturn, Optional, Sequence

from trainmaster.environment import visible_devices
from trainmaster.jsonfile import read_object, write_json
from trainmaster.paths import RunPaths, rank_of
from trainmaster.protocol import EXIT_CONTAINER, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, Container, Spec
from trainmaster.runner import container_commands as commands
from trainmaster.runner import container_pull as pull
from trainmaster.runner import hooks
from trainmaster.runner.container_runtimes import (
    Runtime,
    choose,
    describes_gpus,
    find_runtimes,
    of_slurm,
)
from trainmaster.runner.state import note_sentence, read_spec

BUNDLE = Path(__file__).resolve().parents[2]
_REMOVAL_SECONDS = 30.0
#: by which exit codes a runtime says that it failed itself, and how its own last line begins. podman and docker say 126
#: and 127 of a command that the image lacks, but of a device or a limit that the host refuses, too.
_OWN_CODES = {"podman": (125, 126, 127), "docker": (125, 126, 127), "apptainer": (255,)}
_OWN_LINE = {"podman": "Error:", "docker": "docker:", "apptainer": "FATAL:"}
_OF_THE_COMMAND = re.compile(r"""\bexec:? ["/]|executable file\b.* not found|\bexec format error""")
_TAIL_BYTES = 8192
_LAST_LINES = 3  # after its own line a runtime names its help


def words_for(words: Sequence[str]) -> List[str]:
    """What the launcher starts in the place of `words`."""
    return [sys.executable, "-m", "trainmaster.runner.in_container", *words]


def clean_up(paths: RunPaths) -> None:
    """Remove what a container of the run has left: itself in the runtime's storage, and the login of its pull."""
    shutil.rmtree(paths.registry_login, ignore_errors=True)
    runtime = _started_by(paths)
    program = shutil.which(runtime) if runtime else None
    command = (
        commands.remove_command(runtime, program, _container_name(paths.key)) if runtime and program else []
    )
    if command:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("TRAINMASTER_")
        }
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            _quietly(command, environment, _REMOVAL_SECONDS)
    with contextlib.suppress(OSError):  # the container may have put anything in its place
        paths.container.unlink()


def _container_name(key: str) -> str:
    return f"trainmaster-{key}"


def _started_by(paths: RunPaths) -> Optional[str]:
    """The runtime that started the run's container; None where it did not come to that.

    What runs in the container can write the file, so nothing but one of three words is taken from it: a path or a name
    from there would be a way out of the container.
    """
    runtime = read_object(paths.container).get("runtime")
    return runtime if isinstance(runtime, str) and runtime in _OWN_CODES else None


def why_not_started(paths: RunPaths, container: Container, code: Optional[int]) -> Optional[str]:
    """A sentence for the log where the image could not be used; None where it could, or where the log has it already.

    A fault of the runtime itself is noted for exit.json, too.
    """
    image, runtime = container["image"], _started_by(paths)
    if runtime is None:
        return None
    fault = fault_of_runtime(paths, runtime, code)
    if fault is not None:
        sentence = f"the container of image {image} could not be started by {runtime}: {fault}"
        note_fault(paths, sentence)
        return sentence
    if code in (EXIT_NOT_FOUND, EXIT_NOT_EXECUTABLE):
        return (
            f"a command could not be started in image {image}; see the lines above. An image needs sh, and "
            "python3 (3.8 or newer) where the entrypoint or a launch module uses it"
        )
    return None


def main(words: Sequence[str]) -> None:
    """Does not return."""
    paths = RunPaths.from_environment()
    if paths is None:
        raise RuntimeError("This is the entrypoint of a run, but there is no run.")
    spec = read_spec(paths)
    container = spec.get("container")
    if container is None:
        os.execvp(words[0], list(words))
    gpus = visible_devices(spec)
    if not gpus and any(slot["kind"] == "cuda" for slot in spec["slots"]):
        host = spec["host"]["name"]
        _leave(
            paths,
            f"the GPUs of host {host} that Slurm gave the run are not known, so no container can have them",
        )
    runtime = _runtime(paths, container, spec, bool(gpus))
    container = _fetched(runtime, container, paths)
    inside = _inside(spec, paths, gpus)
    Path(inside.home).mkdir(mode=0o700, exist_ok=True)
    write_json(paths.container, {"runtime": runtime["name"]})
    command = commands.run_command(runtime["name"], runtime["path"], container, inside, words)
    environment = commands.client_environment(runtime["name"], os.environ, inside)
    os.execve(command[0], command, environment)


def _runtime(paths: RunPaths, container: Container, spec: Spec, gpus: bool) -> Runtime:
    runtimes, cdi = find_runtimes(), describes_gpus()
    if paths.is_slurms():
        runtimes = of_slurm(runtimes)
    chosen = choose(runtimes, gpus, cdi)
    host = spec["host"]["name"]
    if chosen is None:
        reasons = "; ".join(f"{one['name']} cannot be used: {one['problem']}" for one in runtimes)
        reasons = reasons or "it has no podman, docker or apptainer on its PATH"
        _leave(paths, f"host {host} cannot run image {container['image']}: {reasons}")
    if gpus and not cdi and chosen["name"] == "podman":
        _leave(
            paths,
            f"podman on host {host} cannot give GPUs to containers, because no CDI specification lists them: run "
            "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` there",
        )
    return chosen


def _fetched(runtime: Runtime, container: Container, paths: RunPaths) -> Container:
    """The container with an image that is on this host."""
    name, program, image = runtime["name"], runtime["path"], container["image"]
    if name == "apptainer" and image.startswith("/"):
        return container
    anew = container.get("force_pull") and hooks.EXIT_CODE not in os.environ  # not again for the post hook
    if name != "apptainer" and not anew and _quietly(commands.exists_command(name, program, image)) == 0:
        return container
    into = str(paths.root / "image.sif")
    _pull(runtime, container, paths, into)
    if name == "apptainer":
        container["image"] = into
    return container


def _pull(runtime: Runtime, container: Container, paths: RunPaths, into: str) -> None:
    name, image, login = runtime["name"], container["image"], container.get("registry_auth") or {}
    environment, auth = dict(os.environ), ""
    if login and name == "apptainer":
        environment.update(pull.apptainer_login(login))
    elif login:
        file = pull.write_auth(paths.registry_login, image, login)
        auth = str(file if name == "podman" else file.parent)
    progress = pull.Progress(image)
    hooks.say("INFO", f"pulling image {image} by {name} {runtime['version']}")
    try:
        child = subprocess.Popen(
            commands.pull_command(name, runtime["path"], image, auth, into),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert child.stdout is not None
        for line in child.stdout:
            sentence = progress.take(line)
            if sentence:
                hooks.say("INFO", sentence)
        code = child.wait()
    finally:
        shutil.rmtree(paths.registry_login, ignore_errors=True)
    if code != 0:
        _leave(paths, f"image {image} could not be pulled: {progress.fault()}")
    hooks.say("INFO", f"image {image} is available")


def _inside(spec: Spec, paths: RunPaths, gpus: List[str]) -> commands.Inside:
    storage = spec["checkpoint_storage"]
    folders = [str(storage["host_path"])] if storage.get("type") == "shared_fs" else []
    return commands.Inside(
        name=_container_name(spec["run_key"]),
        key=spec["run_key"],
        run=str(paths.root),
        home=str(paths.root / "home"),
        code=str(paths.code),
        bundle=str(BUNDLE),
        variables=commands.passed_names(os.environ, spec["environment"]),
        uid=os.getuid(),
        gid=os.getgid(),
        groups=os.getgroups(),
        gpus=gpus,
        folders=folders,
        of_slurm=paths.is_slurms(),
    )


def _quietly(
    command: List[str], environment: Optional[Dict[str, str]] = None, seconds: Optional[float] = None
) -> int:
    """The exit code of a program that neither reads nor says anything."""
    null = subprocess.DEVNULL
    return subprocess.run(
        command, env=environment, stdin=null, stdout=null, stderr=null, timeout=seconds, check=False
    ).returncode


def _leave(paths: RunPaths, text: str) -> NoReturn:
    hooks.say("ERROR", text)
    if hooks.EXIT_CODE not in os.environ:  # of the post hook's container it is too late to say so
        note_fault(paths, text)
    raise SystemExit(EXIT_CONTAINER)


def note_fault(paths: RunPaths, sentence: str) -> None:
    """On a full disk it is left to the log and the exit code: the launcher, which asks for this, must outlast that."""
    with contextlib.suppress(OSError):
        note_sentence(paths.image_fault, sentence)


def fault_of_runtime(paths: RunPaths, runtime: str, code: Optional[int]) -> Optional[str]:
    """The last words of `runtime` where it ended with `code` before anything ran in the container; None otherwise.

    What ran may end with such a code itself. It is told apart by the runtime's line, and by what it has printed.
    """
    if code not in _OWN_CODES[runtime] or _has_ranks(paths):
        return None
    for line in reversed(_last_lines(paths)):
        if line.startswith(_OWN_LINE[runtime]):
            return None if _OF_THE_COMMAND.search(line) else line.partition(":")[2].strip()
    return None


def _has_ranks(paths: RunPaths) -> bool:
    """Has a rank begun? Its output is not among the launcher's, so a training of hours may have left that empty."""
    return any(rank_of(entry.name) is not None for entry in paths.spool.glob("*"))


def _last_lines(paths: RunPaths) -> List[str]:
    """Return the last lines of its errors; none if it has printed anything else."""
    try:
        if paths.launcher_stream("stdout").stat().st_size:
            return []
        with paths.launcher_stream("stderr").open("rb") as stream:
            stream.seek(max(0, stream.seek(0, 2) - _TAIL_BYTES))
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [line.strip() for line in lines if line.strip()][-_LAST_LINES:]


if __name__ == "__main__":
    main(sys.argv[1:])
