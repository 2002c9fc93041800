"""Whose fault it is that a run in an image ended at once: the runtime's, or that of what ran in it."""

from pathlib import Path

import pytest

from trainmaster.paths import RunPaths
from trainmaster.runner import in_container
from trainmaster.runner.state import read_sentence

DOCKER = "docker: Error response from daemon: "
HELP = "\n\nRun 'docker run --help' for more information\n"
SHIM = "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: "


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    found = RunPaths(tmp_path)
    found.spool.mkdir()
    return found


@pytest.mark.parametrize(
    ("runtime", "code", "errors", "fault"),
    [
        ("docker", 125, f"{DOCKER}bind source path does not exist: /a{HELP}", "bind source path does not exist: /a"),
        ("docker", 127, f"{DOCKER}custom device: no such file or directory{HELP}", "custom device: no such"),
        ("docker", 127, f'{DOCKER}{SHIM}exec: "nope": executable file not found in $PATH: unknown{HELP}', None),
        ("docker", 125, f"{DOCKER}{SHIM}error setting rlimit type 8: operation not permitted{HELP}", "rlimit type 8"),
        ("docker", 125, "giving up\n", None),
        ("docker", 1, f"{DOCKER}of something else\n", None),
        ("podman", 125, "INFO: trainmaster: image a is available.\nError: statfs /a: no such file\n", "statfs /a"),
        ("podman", 126, "Error: runc: error setting rlimits: OCI permission denied\n", "error setting rlimits"),
        ("podman", 127, "Error: crun: executable file `nope` not found in $PATH: No such file\n", None),
        ("podman", 127, 'Error: runc: exec: "/nope": stat /nope: no such file or directory: OCI runtime\n', None),
        ("apptainer", 255, "FATAL:   container creation failed: mount /a: no such file\n", "container creation failed"),
        ("apptainer", 255, 'FATAL:   "nope": executable file not found in $PATH\n', None),
        ("apptainer", 1, "FATAL:   of something else\n", None),
    ],
)  # fmt: skip
def test_the_last_line_of_a_runtime_says_what_it_refused(
    paths: RunPaths, runtime: str, code: int, errors: str, fault: str | None
) -> None:
    paths.launcher_stream("stdout").write_bytes(b"")
    paths.launcher_stream("stderr").write_text(errors)
    found = in_container.fault_of_runtime(paths, runtime, code)
    assert (found is None) if fault is None else (found is not None and fault in found)


def test_what_has_printed_anything_has_run(paths: RunPaths) -> None:
    paths.launcher_stream("stdout").write_bytes(b"step 1\n")
    paths.launcher_stream("stderr").write_text("Error: of the job\n")
    assert in_container.fault_of_runtime(paths, "podman", 125) is None
    assert read_sentence(paths.image_fault) is None
    in_container.note_fault(paths, "a sentence")
    assert read_sentence(paths.image_fault) == "a sentence"


@pytest.mark.parametrize("left", ["rank0.stdout", "core.rank0.jsonl"])
def test_where_a_rank_has_begun_the_container_had_started(paths: RunPaths, left: str) -> None:
    paths.launcher_stream("stdout").write_bytes(b"")
    paths.launcher_stream("stderr").write_text("Error: of the job\n")
    assert in_container.fault_of_runtime(paths, "podman", 125) == "of the job"
    (paths.spool / left).touch()
    assert in_container.fault_of_runtime(paths, "podman", 125) is None


def test_a_disk_that_takes_nothing_does_not_end_the_launcher(paths: RunPaths) -> None:
    paths.control.write_text("a file where the folder should be")
    in_container.note_fault(paths, "a sentence")
