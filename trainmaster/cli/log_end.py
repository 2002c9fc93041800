"""What stands behind the last line of a followed log: why the run stopped, and the exit code of its job."""

from __future__ import annotations

from typing import Any, List

from trainmaster.cli.errors import FAILED, OK
from trainmaster.cli.output import clean, say
from trainmaster.client import Client, Json
from trainmaster.http import Answered

_HOSTS_NAMED = 8


def why_stopped(client: Client, owner_path: str) -> Json:
    """What the server knows of the end of `/api/v1/trials/7` or `/api/v1/tasks/ID`; empty where it does not say."""
    try:
        return dict(client.get(f"{owner_path}/why-stopped") or {})
    except Answered as error:
        if error.status in (404, 405):
            return {}
        raise


def tell(why: Json, otherwise: str) -> None:
    """The sentences (or what is known `otherwise`) and the last lines of the rank that failed first, on stderr."""
    for sentence in why.get("sentences") or ([otherwise] if otherwise else []):
        say(clean(str(sentence)), "red")
    for line in why.get("lines") or []:
        rank = f"[rank={line['rank']}] " if line.get("rank") is not None else ""
        say(f"  | {rank}{clean(str(line.get('text', '')))}")


def exit_code(why: Json, known: Any = None) -> int:
    """The failed job's own code as a shell gives it, else 1. `known` is one from elsewhere."""
    code, signal = why.get("exitCode"), why.get("signal")
    if code is None and isinstance(signal, int):
        code = 128 + signal
    for found in (code, known):
        if isinstance(found, int) and OK < found < 256:
            return found
    return FAILED


def hosts_in_words(hosts: List[str]) -> str:
    """`hosts gpu1, gpu2`, `host gpu1`, `no host`; of many the first ones."""
    names = [clean(str(host)) for host in hosts if host]
    if not names:
        return "no host"
    more = f" and {len(names) - _HOSTS_NAMED} more" if len(names) > _HOSTS_NAMED else ""
    return f"host{'' if len(names) == 1 else 's'} {', '.join(names[:_HOSTS_NAMED])}{more}"


def ranks_in_words(ranks: List[int]) -> str:
    """`ranks 0-3 and 7`, `rank 5`, `no rank`."""
    runs: List[List[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    texts = [f"{first}" if first == last else f"{first}-{last}" for first, last in runs]
    if not texts:
        return "no rank"
    listed = ", ".join(texts[:-1]) + (" and " if len(texts) > 1 else "") + texts[-1]
    return f"rank {listed}" if len(set(ranks)) == 1 else f"ranks {listed}"
