"""Which rank the others wait for: the rule of marks. Pure: what was seen of a gang in, sentences out.

A rank is marked when it stands still while its peers go on, or while they wait for it. When one rank of a gang
stops, all of them soon do, in the next collective: so standing still is no evidence, being the cause is. There
are six kinds of it, from the surest to the weakest, and the surest kind that is found is the only one that
counts: if one rank is stopped by a signal, the others' silence says nothing about them.

1. A process of the rank is stopped (state T), and not those of all ranks.
2. A process of it waits in the kernel (state D) without using a processor, and the others' do not.
3. It has entered fewer collectives of the SDK than its peers: they wait for it in the next one. Or its signs of
   life have ended while most of its peers' go on.
4. Its processes use no processor while those of most of its peers are busy, as they are while NCCL waits.
5. It alone sleeps in another place of the kernel than all its peers, who stand still together.
6. All but a few have ended, and it goes on without a sign of progress: it holds the gang's slots.

Of ranks that have ended nobody waits for any: 1 to 5 look at the others alone.

Work of one rank while the others wait is usual (the chief evaluates, saves, prints), so 3 is patient with a rank
that is busy, and 4 and 5 need most of the gang against a few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from trainmaster.quantities import duration

#: how long each kind of evidence must have lasted, in seconds
STOPPED_SECONDS = 3.0
KERNEL_SECONDS = 20.0
BEHIND_SECONDS = 10.0
BEHIND_BUSY_SECONDS = 300.0
SILENT_BUSY_SECONDS = 60.0
SAVING_SECONDS = 600.0
IDLE_SECONDS = 20.0
ALONE_SECONDS = 30.0
LEFT_SECONDS = 20.0
#: a rank whose signs of life come in irregular pauses is given this many of its longest usual ones
USUAL_GAPS = 3.0
#: how many times as often as a rank its peers may give signs of life, for their ends to be comparable
COMPARABLE_BEATS = 4
#: of one processor: what is busy, and what is stuck in the kernel rather than writing much
BUSY_CPU = 0.5
STUCK_CPU = 0.01
#: the weak kinds of evidence mean nothing in a smaller gang
FEWEST_RANKS = 4
#: the part of a gang that is a few of it
FEW = 1 / 4
#: what a runner says in place of the kernel's letter of a rank of which no process is left
ENDED = "ended"


@dataclass(frozen=True)
class Seen:
    """A rank as it was seen last, times in seconds before now.

    `state` is the kernel's letter for its processes, or ENDED. Of the SDK's sign of life (None or 0 without one):
    `calls` counts collectives that it has entered, `waits` says that it is in the last of them, `beats` counts all
    signs, `quiet` is the time since the last, `gap` the longest usual time between two, `doing` is long work that
    it has announced. `wrote` is the time since its last line, None when nobody knows. `cpu` is in processors, `gpu`
    in percent (None: unknown).
    """

    rank: int
    host: str
    state: str = ""
    pid: int = 0
    state_seconds: float = 0.0
    step: int | None = None
    calls: int | None = None
    waits: bool = False
    beats: int = 0
    quiet: float | None = None
    gap: float = 0.0
    doing: str = ""
    cpu: float = 0.0
    gpu: int | None = None
    idle_seconds: float = 0.0
    wrote: float | None = None
    waits_in: str = ""

    @property
    def busy(self) -> bool:
        return self.idle_seconds < BEHIND_SECONDS

    @property
    def ended(self) -> bool:
        return self.state == ENDED

    @property
    def name(self) -> str:
        return f"rank {self.rank} on {self.host}"

    @property
    def has_left(self) -> bool:
        """It has closed the SDK's context: its peers do not wait for it."""
        return self.doing == "has left"


Rule = Callable[[Sequence[Seen]], dict[int, str]]


def marks(gang: Sequence[Seen]) -> dict[int, str]:
    """Rank -> a sentence with the evidence, of the ranks that the others wait for; empty for a gang in order."""
    going_on = [seen for seen in gang if not seen.ended]
    rules: list[Rule] = [_stopped, _in_the_kernel, _behind, _silent, _idle, _alone]
    for rule in rules if len(going_on) > 1 else []:
        found = rule(going_on)
        if found and len(found) < len(going_on):
            return found
    return _left(gang, going_on)


def _stopped(gang: Sequence[Seen]) -> dict[int, str]:
    return {
        seen.rank: f"{seen.name} has made no progress for {duration(seen.state_seconds)}: its process {seen.pid} is "
        + ("stopped (state T)." if seen.state == "T" else "held by a debugger (state t).")
        for seen in gang
        if seen.state in {"T", "t"} and seen.state_seconds >= STOPPED_SECONDS
    }


def _in_the_kernel(gang: Sequence[Seen]) -> dict[int, str]:
    return {
        seen.rank: f"{seen.name} has made no progress for {duration(seen.state_seconds)}: its process {seen.pid} is "
        f"blocked in the kernel (state D{_place(seen)}), for example by a disk or a network file system."
        for seen in gang
        if seen.state == "D" and min(seen.state_seconds, seen.idle_seconds) >= KERNEL_SECONDS
        if seen.cpu < STUCK_CPU and not seen.doing
    }


def _behind(gang: Sequence[Seen]) -> dict[int, str]:
    """Those that have entered fewer collectives than others, who have waited since they entered theirs."""
    counted = [
        seen for seen in gang if seen.calls is not None and seen.quiet is not None and not seen.has_left
    ]
    most = max((seen.calls or 0 for seen in counted), default=0)
    ahead = [seen for seen in counted if seen.calls == most and seen.waits]
    behind = [seen for seen in counted if seen.calls != most]
    waited = max((seen.quiet or 0.0 for seen in ahead), default=0.0)
    found = {}
    for seen in behind:
        since = min(waited, seen.quiet or 0.0)
        if len(behind) <= len(counted) / 2 and since >= _patience(seen, BEHIND_BUSY_SECONDS):
            found[seen.rank] = (
                f"{seen.name} has been behind for {duration(since)}: {_place_of(seen, ahead[0])}{_manner(seen)}."
            )
    return found


def _silent(gang: Sequence[Seen]) -> dict[int, str]:
    """Those whose signs of life have ended while those of most peers go on."""
    living = [seen for seen in gang if seen.quiet is not None and not seen.has_left]
    # a rank that gives signs at its start only, while the chief gives some at every step, is no silent one
    often = max((seen.beats for seen in living), default=0) / COMPARABLE_BEATS
    silent = [
        seen
        for seen in living
        if seen.beats >= often
        and (seen.quiet or 0.0) >= max(_patience(seen, SILENT_BUSY_SECONDS), USUAL_GAPS * seen.gap)
    ]
    going_on = [seen for seen in living if (seen.quiet or 0.0) < BEHIND_SECONDS / 2]
    if not silent or len(going_on) < len(living) / 2 or len(silent) > len(living) / 2:
        return {}
    return {
        seen.rank: f"{seen.name} has given no sign of life for {duration(seen.quiet or 0.0)} while its "
        f"{_count(len(going_on))} continue{'s' if len(going_on) == 1 else ''}{_manner(seen)}."
        for seen in silent
    }


def _idle(gang: Sequence[Seen]) -> dict[int, str]:
    idle = [seen for seen in gang if seen.idle_seconds >= IDLE_SECONDS and not seen.has_left]
    peers = [seen for seen in gang if seen.cpu >= BUSY_CPU or (seen.gpu or 0) > 0]
    if len(gang) < FEWEST_RANKS or len(idle) > len(gang) / 4 or len(idle) + len(peers) < len(gang):
        return {}
    return {
        seen.rank: f"{seen.name} has used no CPU{' and no GPU' if seen.gpu == 0 else ''} for "
        f"{duration(seen.idle_seconds)} while its {_count(len(peers))} use {median(p.cpu for p in peers):.1f} "
        "CPUs each."
        for seen in idle
    }


def _alone(gang: Sequence[Seen]) -> dict[int, str]:
    """The one that sleeps elsewhere than all the others, while the whole gang stands still."""
    still = all(seen.idle_seconds >= ALONE_SECONDS and seen.waits_in and not seen.doing for seen in gang)
    quiet = all(
        seen.quiet is None or seen.quiet >= max(ALONE_SECONDS, USUAL_GAPS * seen.gap) for seen in gang
    )
    places = Counter(seen.waits_in for seen in gang).most_common()
    if len(gang) < FEWEST_RANKS or not (still and quiet) or [count for _, count in places[1:]] != [1]:
        return {}
    common = places[0][0]
    return {
        seen.rank: f"{seen.name} has been waiting in {seen.waits_in} for {duration(seen.idle_seconds)}, and all its "
        f"peers in {common}: they are waiting for each other, but it is waiting for something else."
        for seen in gang
        if seen.waits_in != common and seen.cpu < STUCK_CPU
    }


def _left(gang: Sequence[Seen], going_on: Sequence[Seen]) -> dict[int, str]:
    """Those that go on when all but a few have ended, since the last of these did."""
    ended = len(gang) - len(going_on)
    if not ended or len(going_on) > max(1.0, len(gang) * FEW):
        return {}
    since = min(seen.state_seconds for seen in gang if seen.ended)
    return {
        seen.rank: f"{seen.name} is still running {duration(since)} after {ended} of {len(gang)} ranks "
        f"ended{_manner(seen)}."
        for seen in going_on
        if since >= max(LEFT_SECONDS, _patience(seen, BEHIND_BUSY_SECONDS)) and not _progresses(seen)
    }


def _progresses(seen: Seen) -> bool:
    """Its signs of life go on."""
    if seen.quiet is None or seen.has_left or seen.state in {"T", "t"}:
        return False
    return seen.quiet < max(BEHIND_SECONDS, USUAL_GAPS * seen.gap)


def _patience(seen: Seen, busy_seconds: float) -> float:
    """How long the others may have waited for this rank before that is worth a mark."""
    if seen.doing and not seen.has_left:
        return SAVING_SECONDS
    return busy_seconds if seen.busy else BEHIND_SECONDS


def _place_of(seen: Seen, ahead: Seen) -> str:
    if seen.step is not None and ahead.step is not None and seen.step != ahead.step:
        return f"it is at step {seen.step}, its peers are at {ahead.step}"
    return (
        f"it has entered {seen.calls} collective calls, its peers {ahead.calls}, and they are waiting for it"
    )


def _manner(seen: Seen) -> str:
    """What its processes do meanwhile."""
    if seen.state in {"T", "t"}:
        return f"; its process {seen.pid} is stopped"
    if seen.doing and not seen.has_left:
        return f"; it {seen.doing}"
    if seen.busy:
        return "; its processes are busy"
    return f"; its process sleeps{_place(seen, ' in ')}"


def _place(seen: Seen, before: str = ", ") -> str:
    return f"{before}{seen.waits_in}" if seen.waits_in else ""


def _count(peers: int) -> str:
    return f"{peers} peers" if peers != 1 else "peer"
