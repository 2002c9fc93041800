"""`python3 -m trainmaster.burn_in.between [SECONDS]`: a rank that measures the links between hosts, or between GPUs.

All parts together, then each pair, many of them at a time; and if all together are slow or hang, halves of them, until
it is clear because of which part. Each measurement is a process group of its own, which ends at a time limit, and the
ranks agree on what follows through the store at which they have met. A launch module starts the ranks of a gang, the
program of a host's own burn-in those of its GPUs.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from datetime import timedelta
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

from trainmaster.burn_in import bad_part
from trainmaster.burn_in.piece import GIGA, SENTENCE_CHARACTERS, Leave, Pace
from trainmaster.burn_in.processor import model
from trainmaster.core._records import Records
from trainmaster.paths import RunPaths
from trainmaster.runner.state import read_spec

#: how long each rate is measured, and after which time a collective counts as one that hangs
SECONDS, LIMIT_SECONDS = 1.0, 10.0
#: of a measurement, which is a few collectives; a rank that is still in it then ends
_HANGS_SECONDS = 10 * LIMIT_SECONDS
#: until all have said what they found: longer, so that no rank that is well ends before the one that hangs
_AGREE_SECONDS = _HANGS_SECONDS + 2 * LIMIT_SECONDS
#: bytes of one collective
_GPU_BYTES, _CPU_BYTES = 64 * 1024 * 1024, 4 * 1024 * 1024
_MOST_TIMES, _TRIES = 50, 3
#: of one record: the server keeps all of a run in one row
_RATES_AT_ONCE = 24
#: after the order to leave, for the measurement that is under way
_LEAVE_SECONDS, _LOOK_SECONDS = 5.0, 0.2
_HUNG = 70
#: where in PyTorch's own sources an error arose
_SOURCE = re.compile(r"\[\S*/\S+:\d+\]")

Subset = Tuple[int, ...]


class Rank(NamedTuple):
    """This process. `parts`: of each rank of the run, which part it belongs to."""

    number: int
    device: Any
    parts: List[int]

    @property
    def part(self) -> int:
        return self.parts[self.number]

    @property
    def speaks(self) -> bool:
        """One rank of each part reports."""
        return self.parts.index(self.part) == self.number

    def ranks_of(self, subset: Sequence[int]) -> List[int]:
        return [rank for rank, part in enumerate(self.parts) if part in subset]


class Measuring:
    """The rounds of a run: what this rank does in each, and what all of them have found."""

    def __init__(
        self, torch: Any, store: Any, rank: Rank, pace: Pace, records: Records, is_gang: bool
    ) -> None:
        self._torch, self._store, self._rank = torch, store, rank
        self._pace, self._records, self._is_gang = pace, records, is_gang
        self._how = _how(torch, rank)
        self._round = 0
        self._unsaid: List[Dict[str, Any]] = []
        #: what all ranks know of all-reduces: 0 for one that failed
        self.rates: Dict[FrozenSet[int], float] = {}

    def run(self) -> None:
        """Raises Leave, on all ranks in the same round."""
        try:
            self._run()
        finally:
            self._say()

    def _run(self) -> None:
        parts = sorted(set(self._rank.parts))
        if len(parts) > 2:
            self._measure([tuple(parts)])
        for pairs in bad_part.rounds(len(parts)):
            self._measure([(parts[a], parts[b]) for a, b in pairs])
        of_pairs = [rate for subset, rate in self.rates.items() if len(subset) == 2]
        least = bad_part.BAD * bad_part.usual(of_pairs, len(parts))
        if self.rates.get(frozenset(parts), 0.0) < least:
            self._search(parts, least)

    def _search(self, parts: List[int], least: float) -> None:
        going, answers = bad_part.search(parts), None
        try:
            while True:
                subsets = next(going) if answers is None else going.send(answers)
                self._measure([subset for subset in subsets if frozenset(subset) not in self.rates])
                answers = [self.rates[frozenset(subset)] >= least for subset in subsets]
        except StopIteration:
            pass

    def _measure(self, subsets: List[Subset]) -> None:
        """Each rank measures in its subset, if it is in one; then all know the rates of all."""
        self._round += 1
        mine = next((subset for subset in subsets if self._rank.part in subset), None)
        found: List[Dict[str, Any]] = []
        if mine is not None:
            found = self._found(mine)
            if self._rank.speaks:
                self._tell(found)
        rates = [rate for each in self._agree(found) for rate in each if rate["measure"] == "all_reduce"]
        for subset in subsets:
            told = [rate["value"] for rate in rates if tuple(rate["parts"]) == subset]
            self.rates[frozenset(subset)] = min(told, default=0.0)

    def _tell(self, found: List[Dict[str, Any]]) -> None:
        whole = found[0]
        print(
            f"{list(whole['parts'])}: {whole['value']:g} GB/s {found[-1].get('sentence', '')}".rstrip(),
            flush=True,
        )
        if not self._is_processes:
            self._unsaid += found
            if len(self._unsaid) >= _RATES_AT_ONCE:
                self._say()
        elif self._rank.number == 0 and "sentence" not in whole:
            self._records.append(
                "burn_in", measure="all_reduce", value=whole["value"], how=self._how, slot=None
            )

    def _say(self) -> None:
        if self._unsaid:
            self._records.append("burn_in_rates", how=self._how, rates=self._unsaid)
            self._unsaid = []

    @property
    def _is_processes(self) -> bool:
        """The parts are processes on a host without GPUs, so what is measured is the host."""
        return self._rank.device.type == "cpu" and not self._is_gang

    def _agree(self, found: List[Dict[str, Any]]) -> List[List[Dict[str, Any]]]:
        """What each rank has found. Raises Leave on all of them if one of them was asked to leave."""
        self._store.set_timeout(timedelta(seconds=_AGREE_SECONDS))
        said = json.dumps({"found": found, "leaves": self._pace.is_over()})
        self._store.set(f"{self._round}/{self._rank.number}", said)
        heard = [
            json.loads(self._store.get(f"{self._round}/{number}")) for number in range(len(self._rank.parts))
        ]
        if any(each["leaves"] for each in heard):
            raise Leave
        return [each["found"] for each in heard]

    def _found(self, subset: Subset) -> List[Dict[str, Any]]:
        """The rates of the subset; for one that fails or hangs 0, and why."""
        watch = threading.Timer(_HANGS_SECONDS, os._exit, (_HUNG,))  # what even its time limit does not end
        watch.daemon = True
        watch.start()
        dist = self._torch.distributed
        ranks = self._rank.ranks_of(subset)
        found = [{"measure": "all_reduce", "parts": subset, "value": 0.0}]
        try:
            self._forget_groups(dist.distributed_c10d)
            dist.init_process_group(
                self._backend,
                store=dist.PrefixStore(f"{self._round}/{subset[0]}", self._store),
                rank=ranks.index(self._rank.number),
                world_size=len(ranks),
                timeout=timedelta(seconds=LIMIT_SECONDS),
            )
            found[0]["value"] = round(self._all_reduce(dist, len(ranks)), 6)
            if len(subset) == 2:
                found += self._sent(dist, subset)
        except Exception as error:
            if found[0]["value"]:
                found.append({"measure": "send", "parts": subset, "value": 0.0})
            sentence = " ".join((_SOURCE.sub("", str(error)) or type(error).__name__).split())
            found[-1]["sentence"] = sentence[:SENTENCE_CHARACTERS]
        finally:
            self._leave_group(dist, failed="sentence" in found[-1])
            watch.cancel()
        return found

    def _forget_groups(self, c10d: Any) -> None:
        """A group that did not come about counts on some ranks, which would then look for the next by another name."""
        world = getattr(c10d, "_world", None)
        if world is None:
            c10d._group_count = 0
        else:
            world.group_count = 0

    @property
    def _backend(self) -> str:
        return "gloo" if self._rank.device.type == "cpu" else "nccl"

    def _leave_group(self, dist: Any, *, failed: bool) -> None:
        if not dist.is_initialized():
            return
        try:
            abort = getattr(dist.distributed_c10d, "_abort_process_group", None)
            if failed and abort is not None and self._backend == "nccl":
                abort()  # else it would wait for what hangs
            else:
                dist.destroy_process_group()
        except Exception as error:
            print(f"The process group could not be ended: {error}", file=sys.stderr, flush=True)

    def _all_reduce(self, dist: Any, ranks: int) -> float:
        """GB/s over each link, which is the same for any number of ranks if all links are as fast."""
        tensor = self._tensor()
        dist.all_reduce(tensor[:1])  # connects
        seconds = self._seconds(dist, lambda: dist.all_reduce(tensor))
        return float(tensor.numel() * 4 * 2 * (ranks - 1) / ranks / seconds / GIGA)

    def _sent(self, dist: Any, subset: Subset) -> List[Dict[str, Any]]:
        """GB/s from the first to the second part, and back: each rank with the one at its place in the other."""
        sizes = [len(self._rank.ranks_of([part])) for part in subset]
        here, there = subset.index(self._rank.part), 1 - subset.index(self._rank.part)
        place = self._rank.ranks_of([self._rank.part]).index(self._rank.number)
        couples, tensor = min(sizes), self._tensor()
        peer = place + (sizes[0] if there == 1 else 0)
        found = []
        for sender in (0, 1):

            def pass_on(sender: int = sender) -> None:
                if place < couples:
                    (dist.send if sender == here else dist.recv)(tensor, peer)

            pass_on()  # connects
            seconds = self._seconds(dist, pass_on)
            value = tensor.numel() * 4 * couples / seconds / GIGA
            parts = (subset[sender], subset[1 - sender])
            found.append({"measure": "send", "parts": parts, "value": round(value, 6)})
        return found

    def _tensor(self) -> Any:
        size = _CPU_BYTES if self._backend == "gloo" else _GPU_BYTES
        return self._torch.zeros(size // 4, device=self._rank.device)

    def _seconds(self, dist: Any, work: Any) -> float:
        """How long it takes once: the best of a few tries, in each of which the slowest rank counts.

        All ranks take as many tries of the same length, as they know the same times. A link that is bad is slow in all.
        """
        best = self._slowest(dist, self._timed(work, 1))
        times = min(_MOST_TIMES, int(self._pace.seconds / _TRIES / best))
        for _ in range(_TRIES if times else 0):
            best = min(best, self._slowest(dist, self._timed(work, times)) / times)
        return best

    def _timed(self, work: Any, times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            work()
        if self._backend == "nccl":
            self._torch.cuda.synchronize(self._rank.device)
        return max(time.perf_counter() - began, 1e-9)

    def _slowest(self, dist: Any, seconds: float) -> float:
        told = self._torch.tensor([seconds], dtype=self._torch.float64, device=self._rank.device)
        dist.all_reduce(told, op=dist.ReduceOp.MAX)
        return float(told[0])


def main(seconds: float = SECONDS) -> int:
    paths = RunPaths.from_environment()
    if paths is None:
        print("trainmaster.burn_in.between runs inside a task and is started by the server.", file=sys.stderr)
        return 2
    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = (
        "1"  # a collective that hangs is an error, not the end of the process
    )
    os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
    import torch

    store, number, size = next(
        torch.distributed.rendezvous("env://", timeout=timedelta(seconds=_AGREE_SECONDS))
    )
    spec = read_spec(paths)
    is_gang, local = spec["members"] > 1, int(os.environ["LOCAL_RANK"])
    part = spec["member"] if is_gang else _slot_at(spec["slots"], local)
    device = _device(torch, spec["slots"], local)
    store.set(f"part/{number}", str(part))
    rank = Rank(number, device, [int(store.get(f"part/{each}")) for each in range(size)])
    records, pace = Records(str(paths.root), number if is_gang else 0), Pace(paths.preempt, seconds)
    threading.Thread(target=_leave_in_time, args=[pace], daemon=True).start()
    try:
        Measuring(torch, store, rank, pace, records, is_gang).run()
    except Leave:
        print("Leaving, since the queue needs the slots. The burn-in starts again later.")
        return 0  # a code of its own would be told as the failure of one member
    if is_gang and number == 0:
        records.append("burn_in_done")
    _part(store, number, size)
    return 0


def _leave_in_time(pace: Pace) -> None:
    """End this process if it was asked to leave, and a measurement that hangs keeps it."""
    while not pace.is_over():
        time.sleep(_LOOK_SECONDS)
    time.sleep(_LEAVE_SECONDS)
    os._exit(0)


def _slot_at(slots: Sequence[Any], place: int) -> int:
    """The slot of the GPU at this place; without GPUs the parts are processes."""
    numbers = sorted(slot["index"] for slot in slots if slot["kind"] != "cpu")
    return numbers[place] if place < len(numbers) else place


def _device(torch: Any, slots: Sequence[Any], local: int) -> Any:
    if all(slot["kind"] == "cpu" for slot in slots):
        return torch.device("cpu")
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def _how(torch: Any, rank: Rank) -> str:
    """Rates are compared only with those measured in the same way."""
    by = "gloo" if rank.device.type == "cpu" else "NCCL"
    what = model() if rank.device.type == "cpu" else torch.cuda.get_device_name(rank.device)
    each = rank.parts.count(rank.part)
    return f"{by}, {each} rank{'s' * (each != 1)} each, PyTorch {torch.__version__} on {what}"


def _part(store: Any, number: int, size: int) -> None:
    """Rank 0 may hold the store of all, so it is the last to go."""
    store.set(f"end/{number}", "")
    if number == 0:
        for each in range(size):
            store.get(f"end/{each}")


if __name__ == "__main__":
    told: Optional[str] = next(iter(sys.argv[1:]), None)
    sys.exit(main(float(told or SECONDS)))
