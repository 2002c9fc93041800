"""`host doctor --pool P`: every pair of a pool's hosts meets; the matrix of what they found."""

from __future__ import annotations

import argparse
import sys
import time
from typing import List, Optional
from urllib.parse import quote

from trainmaster.cli import output
from trainmaster.cli.errors import FAILED, OK, CliError
from trainmaster.cli.output import clean, colored, say
from trainmaster.client import Client, Json

#: No pair is done for so long: nobody works on it.
_STILL_SECONDS = 600.0
_LOOK_SECONDS = 0.5


def examine(client: Client, args: argparse.Namespace) -> int:
    """Start the test, tell how far it is, show the result; 1 where a pair is bad or was not tested."""
    path = f"/api/v1/resource-pools/{quote(args.pool, safe='')}/doctor"
    answer = _await(client, path, client.post(path))
    if args.output in output.STRUCTURED:
        output.structured(answer, args.output)
    else:
        show(answer)
    bad = any(not pair["ok"] for pair in answer["pairs"])
    return FAILED if bad or answer["untested"] else OK


def _await(client: Client, path: str, answer: Json) -> Json:
    told, moved = -1, time.monotonic()
    while answer["running"]:
        if answer["done"] != told:
            told, moved = answer["done"], time.monotonic()
            _progress(min(told + 1, answer["all"]), answer["all"])
        if time.monotonic() - moved > _STILL_SECONDS:
            raise CliError(
                f"No pair finished within {_STILL_SECONDS:.0f} s. Is a worker running? Check again with "
                f"`host doctor --pool`; the current test continues."
            )
        time.sleep(_LOOK_SECONDS)
        answer = client.get(path)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return answer


def _progress(number: int, pairs: int) -> None:
    text = f"Pair {number} of {pairs} …"
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    else:
        say(text)


def show(answer: Json) -> None:
    """The matrix, the sentences of what is wrong, the networks, and what to do."""
    hosts: List[str] = answer["hosts"]
    cells = {frozenset(row["hosts"]): "not tested" for row in answer["untested"]}
    for pair in answer["pairs"]:
        names = frozenset((pair["first"], pair["second"]))
        if names not in cells or not pair["ok"]:  # a bad one stays bad until a test says otherwise
            cells[names] = _cell(pair)
    rows = [
        [host, *("·" if host == other else cells.get(frozenset((host, other)), "?") for other in hosts)]
        for host in hosts
    ]
    print(output.table(["Host", *hosts], rows))
    bad = [pair for pair in answer["pairs"] if not pair["ok"]]
    for pair in bad:
        _problem(f"{pair['first']} and {pair['second']} cannot be in one gang", pair["sentence"], "red")
    for row in answer["untested"]:
        _problem(f"{' and '.join(row['hosts'])} were not tested", row["sentence"], "yellow")
    if not bad and any("No all-reduce" in pair["sentence"] for pair in answer["pairs"]):
        pair = next(pair for pair in answer["pairs"] if "No all-reduce" in pair["sentence"])
        print(clean(f"\n{pair['first']} and {pair['second']}: {pair['sentence']}"))
    if answer["advice"]:
        print(f"\n{clean(answer['advice'])}")


def _problem(what: str, sentence: str, color: str) -> None:
    print(colored(clean(f"{what}: {sentence}"), color, sys.stdout))


def _cell(pair: Json) -> str:
    """The rate of the all-reduce, else that of the connection."""
    if not pair["ok"]:
        return "BAD"
    if pair["allReduceMbPerSecond"] is not None:
        return f"{pair['allReduceMbPerSecond']:.0f} MB/s"
    rate: Optional[float] = pair["mbPerSecond"]
    return "ok" if rate is None else f"ok {rate:.0f} MB/s"
