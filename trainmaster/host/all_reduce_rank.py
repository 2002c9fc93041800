"""Executed by the job's own Python: joins the other rank, all-reduces 4 MB a few times, says how fast it went.

The last line of stdout is the answer: {"state": "ready" | "done" | "failed" | "untried", …}.
"""

import json
import sys
import time
from datetime import timedelta
from typing import Any, Dict

_FLOATS = 1024 * 1024
_ROUNDS = 5


def main(task: Dict[str, Any]) -> Dict[str, Any]:
    try:
        import torch
        import torch.distributed as dist
    except Exception as error:  # a torch that is broken here is none
        return {"state": "untried", "message": f"torch cannot be imported: {_sentence(error)}"}
    print(json.dumps({"state": "ready"}), flush=True)
    address = f"[{task['address']}]" if ":" in task["address"] else task["address"]
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://{address}:{task['port']}",
            rank=int(task["rank"]),
            world_size=2,
            timeout=timedelta(seconds=float(task["seconds"])),
        )
        values = torch.ones(_FLOATS)
        dist.all_reduce(values)  # connects
        began = time.perf_counter()
        for _ in range(_ROUNDS):
            dist.all_reduce(values)
        seconds = time.perf_counter() - began
        dist.barrier()
    except Exception as error:
        taken = "in use" in str(error) or "EADDRINUSE" in str(error)  # the port says nothing about the way
        return {"state": "untried" if taken else "failed", "message": _sentence(error)}
    if float(values[0]) != 2.0 ** (_ROUNDS + 1):
        return {"state": "failed", "message": f"the sum is {float(values[0])}, not {2.0 ** (_ROUNDS + 1)}"}
    return {"state": "done", "mb_per_second": round(4 * _FLOATS * _ROUNDS / seconds / 1e6, 1)}


def _sentence(error: Exception) -> str:
    return " ".join((str(error) or type(error).__name__).split())[:300]


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))), flush=True)
