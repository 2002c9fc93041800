"""`python <bundle>/trainmaster/runner keep|ship|detached|stop <run folder>`: the host processes of one run.

They are started by the verbs in trainmaster/host and by each other, never by hand. `attend <workdir> <allocation>
<seconds>` is what a job in Slurm runs on each of its nodes. Its script runs `tell_begun <allocation>` when it begins,
and `ask_to_save <workdir> <allocation> <nodes>` when Slurm wants it to leave.
"""

from __future__ import annotations

import sys
from pathlib import Path

# the bundle, in place of this folder: it shadows nothing
sys.path[0] = str(Path(__file__).resolve().parents[2])


def main(arguments: list[str]) -> int:
    """Exit code 0 when the work is done for good; anything else has a runner started anew."""
    from trainmaster.paths import RunPaths

    verb, folder = arguments[0], RunPaths(Path(arguments[1]))
    if verb == "tell_begun":
        from trainmaster.runner.telling import tell_begun

        return tell_begun(arguments[1])
    if verb in ("attend", "ask_to_save"):
        from trainmaster.runner import attending

        return attending.main(verb, arguments[1:])
    if folder.ticket.exists():
        from trainmaster.runner import attending

        attending.outlive_signals()
    if verb == "keep":
        from trainmaster.runner.keeper import Keeper

        Keeper(folder).run(int(arguments[2]))
    elif verb == "ship":
        from trainmaster.runner.running import run_runner

        return run_runner(folder)
    elif verb == "detached":
        from trainmaster.runner.detached_run import DetachedRunner
        from trainmaster.runner.running import run_runner

        return run_runner(folder, DetachedRunner)
    elif verb == "stop":
        from trainmaster.runner.stopping import carry_out

        carry_out(folder)
    else:
        sys.stderr.write(
            f"There is no verb {verb!r}; allowed: attend, ask_to_save, tell_begun, keep, ship, detached and stop.\n"
        )
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
