"""Run by Python at its start when the folder of this file is on PYTHONPATH, beside the package `trainmaster`.

It makes `determined` a name of ours, lets the process tell what it is doing when it is asked, and then runs the
sitecustomize that it hides, if the host has one.
The finder is loaded at the first import of that name: most Python programs of a job never ask for it.
"""
# ruff: noqa: PTH100, PTH102, PTH113, PTH116, PTH118, PTH119, PTH120, PTH121, PTH123 (pathlib is slow to import)

from __future__ import annotations

import os
import sys


class _Lazy:
    """Stands first among the finders until somebody asks for `determined`, or for a name that begins like it."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):  # type: ignore[no-untyped-def]
        if not fullname.startswith("determined"):
            return None
        sys.meta_path.remove(_Lazy)
        from trainmaster.compat import AliasFinder, install

        install()
        return AliasFinder().find_spec(fullname, path, target)


def _run_hidden() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    for folder in sys.path:
        path = os.path.join(folder or os.curdir, "sitecustomize.py")
        if os.path.isfile(path) and not os.path.samefile(path, __file__) and os.path.abspath(folder) != here:
            with open(path, "rb") as file:
                code = compile(file.read(), path, "exec")
            exec(code, {"__name__": "sitecustomize", "__file__": path, "__builtins__": __builtins__})
            return


def _show_stacks_when_asked() -> None:
    """In a run: on a signal that nobody else uses, write what all threads are doing to a file of the run.

    Written by the interpreter's own handler, so it works while the main thread hangs in a C library.
    trainmaster/host/stacks.py asks, and only a process that has this very file open: anything else it would end.
    """
    run_dir = os.environ.get("TRAINMASTER_RUN_DIR")
    if not run_dir:
        return
    rank = os.environ.get("TRAINMASTER_RANK") or os.environ.get("RANK") or ""
    folder = os.path.join(run_dir, "stacks")
    try:
        import _signal  # type: ignore[import-not-found]  # `signal` itself imports enum
        import faulthandler

        try:  # noqa: SIM105  # contextlib is slow to import
            os.mkdir(folder, 0o700)
        except FileExistsError:
            pass
        path = os.path.join(folder, "rank" + rank if rank.isdigit() else "launcher")
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        faulthandler.register(_signal.SIGRTMIN + 11, file=file, all_threads=True, chain=False)
    except Exception:  # the job must start whatever this costs
        return


def _tell_collectives_when_asked() -> None:
    """In a rank among several: as soon as it has torch's process groups, let it tell what it waits for in them."""
    run_dir, rank = os.environ.get("TRAINMASTER_RUN_DIR"), os.environ.get("RANK", "")
    if not run_dir or not rank.isdigit() or os.environ.get("WORLD_SIZE", "1") == "1":
        return
    if "torch.distributed" in sys.modules:
        _AtTorch.begin()
    else:
        sys.meta_path.insert(0, _AtTorch)


class _AtTorch:
    """Stands first among the finders, and begins once, when torch's package for process groups is imported.

    It stays among them: the interpreter is going through their list when it is called.
    """

    has_begun = False

    @staticmethod
    def find_spec(fullname, path=None, target=None):  # type: ignore[no-untyped-def]
        if fullname == "torch.distributed" and not _AtTorch.has_begun:
            _AtTorch.begin()

    @staticmethod
    def begin() -> None:
        _AtTorch.has_begun = True
        try:
            from trainmaster.compat import flight_recorder

            flight_recorder.answer_when_asked(os.path.join(os.environ["TRAINMASTER_RUN_DIR"], "stacks"))
        except Exception:  # the job must start whatever this costs
            return


def _answer_when_asked() -> None:
    _show_stacks_when_asked()
    _tell_collectives_when_asked()


def _write_to_own_streams() -> None:
    """A rank of a launcher that is not ours gets the files of its rank where it would write into the launcher's.

    So torchrun, accelerate or deepspeed as the entrypoint keep their ranks apart like our launch modules do. Output
    that the launcher has sent elsewhere, by a pipe or a redirect, stays there.
    """
    run_dir, rank = os.environ.get("TRAINMASTER_RUN_DIR"), os.environ.get("RANK", "")
    if not run_dir or not rank.isdigit() or "LOCAL_RANK" not in os.environ:
        return
    spool = os.path.join(run_dir, "spool")
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    for stream in ("stdout", "stderr"):
        try:
            launchers = os.stat(os.path.join(spool, "launcher." + stream))
            taken = [number for number in (1, 2) if os.path.samestat(os.fstat(number), launchers)]
            if taken:
                file = os.open(os.path.join(spool, "rank" + str(int(rank)) + "." + stream), flags, 0o600)
                for number in taken:
                    os.dup2(file, number)
                os.close(file)
        except OSError:  # the job must start whatever this costs
            continue


def _is_command_line() -> bool:
    """Whether this process is the `det` or `trainmaster` of the host's Python, which needs its own package whole.

    A run brings no command line, so with ours in its place it would find no module `determined.cli`.
    """
    try:
        with open("/proc/self/cmdline", "rb") as file:
            words = file.read().split(b"\0")[1:]
    except OSError:
        return False
    while words and words[0].startswith(b"-"):
        option = words.pop(0)
        if option == b"-m":
            return words[0] in (b"determined.cli", b"trainmaster")
        if option in (b"-W", b"-X"):
            words.pop(0)
        elif option == b"-c":
            return False
    return bool(words) and os.path.basename(words[0]) in (b"det", b"trainmaster")


def _leave() -> None:
    """Give the name `trainmaster` back as well."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != here]


def start_warm(order: str) -> None:
    """Become torchrun (trainmaster/launch/warm_torchrun.py). Returns in its ranks alone.

    A failure must never return: the program would run as if this were a rank.
    """
    try:
        from trainmaster.launch import warm_torchrun

        warm_torchrun.run(order, _answer_when_asked)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)


_order = os.environ.pop("TRAINMASTER_WARM_ORDER", "")
if not _order:
    _answer_when_asked()
    _write_to_own_streams()
if _is_command_line():
    _leave()
elif os.environ.get("TRAINMASTER_SDK", "") != "installed":
    sys.meta_path.insert(0, _Lazy)
_run_hidden()
if _order:
    start_warm(_order)
