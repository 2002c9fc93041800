"""Start one TensorFlow worker on this host, with a TF_CONFIG that names those of all hosts.

`python3 -m trainmaster.launch.tensorflow [--port PORT] [--] SCRIPT [ARGS...]`

One worker per host uses all of its slots. TF_CONFIG, which makes a MultiWorkerMirroredStrategy, is set where the gang
has several hosts; `core.DistributedContext.from_tf_config()` reads it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Dict, List, Optional, Sequence, Tuple

from trainmaster._info import ClusterInfo
from trainmaster.launch.rank_group import rank_command, run
from trainmaster.launch.torch_distributed import UsageError, launch_module, rendezvous_port

USAGE = "usage: python3 -m trainmaster.launch.tensorflow [--port PORT] [--] SCRIPT [ARGS...]"


def parse(arguments: Sequence[str]) -> Tuple[Optional[int], List[str]]:
    """(port or None, script and its arguments); UsageError when either is wrong."""
    words, port = list(arguments), None
    if words and words[0].partition("=")[0] == "--port":
        text = words[0].partition("=")[2] if "=" in words[0] else "".join(words[1:2])
        words = words[1:] if "=" in words[0] else words[2:]
        if not text.isdigit() or not 0 < int(text) < 65536:
            raise UsageError(f"--port is {text!r}; it must be a number from 1 to 65535.\n{USAGE}")
        port = int(text)
    if words[:1] == ["--"]:
        words = words[1:]
    if not words:
        raise UsageError(f"An empty script is not allowed.\n{USAGE}")
    if words[0].startswith("-") and words[0] != "-m":
        raise UsageError(f"found {words[0]} instead of the script.\n{USAGE}")
    return port, words


def tf_config(info: Optional[ClusterInfo], port: int) -> Optional[str]:
    """TF_CONFIG of this member of the gang; None for one host alone."""
    if info is None or len(info.container_addrs) == 1:
        return None
    hosts = [f"[{address}]" if ":" in address else address for address in info.container_addrs]
    workers = [f"{host}:{port}" for host in hosts]
    return json.dumps(
        {"cluster": {"worker": workers}, "task": {"type": "worker", "index": info.container_rank}}
    )


def environment_for(info: Optional[ClusterInfo], port: int) -> Dict[str, str]:
    """Our environment plus what TensorFlow and the worker need."""
    environment = {**os.environ, "DET_CHIEF_IP": info.chief_address if info else "127.0.0.1"}
    config = tf_config(info, port)
    if config is not None:
        environment["TF_CONFIG"] = config
    return environment


@launch_module(USAGE)
def main(words: List[str], info: Optional[ClusterInfo]) -> int:
    port, script = parse(words)
    rank = str(info.container_rank) if info else "0"
    return run(rank_command(script, rank), environment_for(info, port or rendezvous_port(info)))


if __name__ == "__main__":
    sys.exit(main())
