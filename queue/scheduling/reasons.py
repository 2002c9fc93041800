"""Why a request waits: codes that are stored, and the sentences people read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from math import inf
from typing import Any

from trainmaster.quantities import duration


class WaitCode(StrEnum):
    """Why a request is not running."""

    BLOCKED = "blocked"  # something of its own must happen first (a checkpoint's upload)
    DEPENDS = "depends"  # other jobs must end first
    NEVER_MET = "never_met"  # one of them has ended otherwise than it must: never
    NO_HOSTS = "no_hosts"
    NEVER_FITS = "never_fits"
    AVOIDS_HOSTS = "avoids_hosts"
    HOSTS_GONE = "hosts_gone"  # the pool has none of the hosts that its config allows any more: never
    ONLY_HOSTS = "only_hosts"  # its config allows some hosts alone
    OVER_MAX_SLOTS = "over_max_slots"  # asks more than its job's max_slots: never
    TIME_LIMIT = "time_limit"  # asks longer than any work may run here: never
    LACKS_ACCOUNT = "lacks_account"  # it would run as a login that may become root: never
    MAX_SLOTS = "max_slots"  # its job holds as many as it may
    AT_ONCE = "at_once"  # as many elements of its array run as may at once
    HOSTS_OFF = "hosts_off"
    COMING_FREE = "coming_free"
    KEPT_FOR = "kept_for"
    UNRESERVED = "unreserved"  # a gang for which the pool's patience does not keep hosts yet
    HELD = "held"  # it has hosts reserved and waits for the runs there to end
    NO_ROOM = "no_room"
    SHARE = "share"
    POSITION = "position"
    NO_PREEMPTION = "no_preemption"
    UNPREEMPTIBLE = "unpreemptible"  # work that may not be stopped holds as many slots as it may
    GROUP_LIMIT = "group_limit"  # a group of its owner holds as many as it may
    OVER_GROUP_LIMIT = "over_group_limit"  # asks more than a group of its owner may ever hold: never
    NOT_RECLAIMABLE = "not_reclaimable"  # it may not be stopped, and would hold what is guaranteed to others
    GROUP_SHARE = "group_share"  # what its groups hold, and what of it is guaranteed
    WINDOW = (
        "window"  # the hosts that would do are taken for maintenance, or for a group, before it could end
    )
    SPARE = "spare"  # the hosts that would do are kept for what recovers from a fault
    BAD_PAIR = "bad_pair"  # hosts whose ranks cannot meet


#: codes that no waiting will cure; the queue shows them as "Never"
NEVER = frozenset(
    {
        WaitCode.NEVER_MET,
        WaitCode.NEVER_FITS,
        WaitCode.AVOIDS_HOSTS,
        WaitCode.HOSTS_GONE,
        WaitCode.OVER_MAX_SLOTS,
        WaitCode.OVER_GROUP_LIMIT,
        WaitCode.TIME_LIMIT,
        WaitCode.LACKS_ACCOUNT,
    }
)


@dataclass(frozen=True, slots=True)
class Reason:
    """A code, the sentence for people, and the numbers in it for programs."""

    code: WaitCode
    sentence: str
    data: Mapping[str, object] = field(default_factory=dict)

    def record(self) -> dict[str, object]:
        """As it is stored in a plan and sent in an answer."""
        return {"code": str(self.code), "sentence": self.sentence, "data": dict(self.data)}


def about(record: Mapping[str, Any]) -> list[str]:
    """What a stored reason is about: its code and whom it names. While that is the same, so is what is waited for."""
    data = record.get("data") or {}
    window = (data["window"], data["ends"]) if "window" in data else ()
    return [str(record["code"]), *map(str, [*(data.get("by") or ()), *(data.get("for") or ()), *window])]


def still_about(then: Sequence[str], now: Sequence[str], running: Collection[str]) -> bool:
    """Does a request wait for the same thing `now` as `then` (both from `about`)? `running`: labels of what runs.

    Each pass estimates again which run should finish first: while the one named then still runs, nothing has changed.
    """
    if then[0] == now[0] == WaitCode.NO_ROOM and any(label in running for label in then[1:]):
        return True
    return list(then) == list(now)


def listed(names: Iterable[str], most: int = 3) -> str:
    """`a`, `a and b`, `a, b and 4 more`."""
    all_names = list(names)
    if len(all_names) > most + 1:
        return f"{', '.join(all_names[:most])} and {len(all_names) - most} more"
    if len(all_names) < 2:
        return "".join(all_names)
    return f"{', '.join(all_names[:-1])} and {all_names[-1]}"


def part_of_job(is_element: bool) -> str:
    """How a sentence about a request names what else its job runs."""
    return "element of its array" if is_element else "trial of its search"


def slots(count: int) -> str:
    """`1 slot`, `8 slots`."""
    return f"{count} slot" if count == 1 else f"{count} slots"


def cleaned(after: list[str], where: str = "") -> str:
    """`1 slot of gpu1 is being cleaned up after exp 12`; `after`: a label for each slot."""
    verb = "is" if len(after) == 1 else "are"
    place = f" {where}" if where else ""
    return f"{slots(len(after))}{place} {verb} being cleaned up after {listed(dict.fromkeys(after))}"


def blocked(sentence: str) -> Reason:
    return Reason(WaitCode.BLOCKED, sentence)


_ENDS = {"success": "succeed", "end": "end", "failure": "fail"}
_OTHERWISE = {"success": "did not succeed", "end": "was deleted", "failure": "did not fail"}


#: (label, "success", "end" or "failure", whether it is over and will not do) of what a request waits for
Awaited = tuple[str, str, bool]


def depends(on: Sequence[Awaited]) -> Reason:
    data = {"by": [label for label, _, _ in on]}
    if lost := [(label, condition) for label, condition, is_over in on if is_over]:
        text = listed(
            f"the {condition} of {label}, which {_OTHERWISE[condition]}" for label, condition in lost
        )
        return Reason(WaitCode.NEVER_MET, f"depends on {text}", data)
    text = listed(f"{label} to {_ENDS[condition]}" for label, condition, _ in on)
    return Reason(WaitCode.DEPENDS, f"waits for {text}", data)


def no_hosts(pool: str) -> Reason:
    return Reason(WaitCode.NO_HOSTS, f"pool {pool} has no hosts yet: add one with `trainmaster host add`")


def no_slots(asks: int, pool: str) -> Reason:
    return Reason(
        WaitCode.NEVER_FITS, f"needs {slots(asks)}; the hosts of pool {pool} have none", {"asks": asks}
    )


def never_on_one_host(asks: int, largest: int) -> Reason:
    text = f"needs {slots(asks)} on one host; the largest host here has {largest}: ask for {largest} or fewer"
    return Reason(WaitCode.NEVER_FITS, text, {"asks": asks, "largest": largest})


def never_in_pool(asks: int, total: int, hosts: int, off: list[str]) -> Reason:
    """`hosts`: how many the pool has, with those that are `off`: why each of these is."""
    counts = [f"{off.count(why)} {why}" for why in dict.fromkeys(off)]
    some = f" ({listed(counts)})" if counts else ""
    here = (
        f"the only host here{some} has {slots(total)}"
        if hosts == 1
        else f"the {hosts} hosts here{some} have {slots(total)} in total"
    )
    return Reason(
        WaitCode.NEVER_FITS,
        f"needs {slots(asks)}; {here}",
        {"asks": asks, "total": total, "hosts": hosts, "off": len(off)},
    )


def not_a_multiple(asks: int, sizes: list[int]) -> Reason:
    """`sizes`: slots per host in this pool, largest first, each once."""
    largest = sizes[0]
    if len(sizes) == 1:
        text = f"needs {slots(asks)}; hosts here have {largest}: ask for {largest} or fewer, or a multiple of {largest}"
    else:
        shown = listed([str(size) for size in sizes])
        text = f"needs {slots(asks)}; hosts here have {shown}: ask for {largest} or fewer, or whole hosts of one size"
    return Reason(WaitCode.NEVER_FITS, text, {"asks": asks, "sizes": sizes})


def avoids(asks: int, names: list[str]) -> Reason:
    text = f"needs {slots(asks)}; it avoids all hosts that could run it: {listed(names)}"
    return Reason(WaitCode.AVOIDS_HOSTS, text, {"asks": asks, "hosts": names})


def hosts_gone(names: Collection[str]) -> Reason:
    """`names`: all hosts that its config allows."""
    which = "host {}, which is" if len(names) == 1 else "hosts {}, which are"
    text = f"waits for {which.format(listed(names))} not in the pool any more"
    return Reason(WaitCode.HOSTS_GONE, text, {"only": list(names)})


def only_hosts(names: Collection[str], gone: Collection[str] = ()) -> Reason:
    """`gone`: those of the names that the pool does not have any more."""
    text = f"only {listed(names)} {'is' if len(names) == 1 else 'are'} allowed by its config"
    if gone:
        text += f", and {listed(gone)} {'is' if len(gone) == 1 else 'are'} not in the pool any more"
    return Reason(WaitCode.ONLY_HOSTS, text, {"only": list(names), "gone": list(gone)})


def among(reason: Reason, only: Reason) -> Reason:
    """The reason, with the hosts that its request's config allows (`only`, from `only_hosts`)."""
    return Reason(reason.code, f"{reason.sentence}; {only.sentence}", {**reason.data, **only.data})


def lacks_account(hosts: list[str], pool: str, *, shared: bool) -> Reason:
    """`hosts`: names of those whose login is root or may become root. `shared`: nobody's account counts here."""
    if shared:
        why, link = f"pool {pool} runs all jobs as the login account", ""
    else:
        why = "its owner has no linked Unix account, so it would run as the login account"
        link = " link one with `trainmaster user link-with-agent-user`, or"
    text = (
        f"{why}, which is root or may become root on {listed(hosts)}; an admin can{link} allow this with "
        f"`trainmaster pool edit {pool} --allow-login-account`"
    )
    return Reason(WaitCode.LACKS_ACCOUNT, text, {"hosts": hosts, "shared": shared})


def over_max_slots(asks: int, most: int) -> Reason:
    text = f"needs {slots(asks)}; max_slots of its job is {most}"
    return Reason(WaitCode.OVER_MAX_SLOTS, text, {"asks": asks, "max_slots": most})


def max_slots(held: int, asks: int, most: int) -> Reason:
    text = f"its job holds {held} of at most {slots(most)} (max_slots); this needs {asks} more"
    return Reason(WaitCode.MAX_SLOTS, text, {"held": held, "asks": asks, "max_slots": most})


def at_once(most: int, total: int) -> Reason:
    """`total`: elements of its array, `most` of which may run at a time and do."""
    text = f"{most} of this array's {total} run{'s' if most == 1 else ''} at once"
    return Reason(WaitCode.AT_ONCE, text, {"at_once": most, "elements": total})


def time_limit(asks: float, longest: float, pool: str) -> Reason:
    """Both in seconds."""
    text = f"asks to run for {duration(asks)}; work in pool {pool} may run for at most {duration(longest)}"
    return Reason(WaitCode.TIME_LIMIT, text, {"asks_seconds": asks, "longest_seconds": longest})


def unpreemptible(held: int, asks: int, most: int) -> Reason:
    text = (
        f"work that is not preemptible holds {held} of at most {slots(most)} here; "
        f"this needs {asks} more and is not preemptible either"
    )
    return Reason(WaitCode.UNPREEMPTIBLE, text, {"held": held, "asks": asks, "most": most})


def bad_pairs(pairs: list[tuple[str, str]]) -> Reason:
    """`pairs`: names of hosts whose ranks cannot meet."""
    shown = listed([f"{first} and {second}" for first, second in pairs])
    text = f"no gang can span hosts that cannot reach each other: {shown}"
    return Reason(WaitCode.BAD_PAIR, text, {"pairs": [list(pair) for pair in pairs]})


def hosts_off(asks: int, off: list[tuple[str, str]]) -> Reason:
    """`off`: (host name, why)."""
    text = f"needs {slots(asks)} on hosts that are unavailable: {listed([f'{name} is {why}' for name, why in off])}"
    if by_hand := [name for name, why in off if why == "disabled"]:
        text += f"; enable with `trainmaster host enable {' '.join(by_hand[:3])}`"
    return Reason(WaitCode.HOSTS_OFF, text, {"asks": asks, "hosts": dict(off)})


def coming_free(asks: int, parts: list[tuple[str, int, int]], by: list[str]) -> Reason:
    """`parts`: (host, free, coming free). `by`: labels of the runs that are being stopped."""
    freed = f" being freed by {listed(by)}" if by else " being freed"
    if len(parts) == 1:
        host, free, coming = parts[0]
        need = f"needs {slots(asks)} on one host: " if asks > 1 else ""
        has = f"{host} has {free} free, " if free else f"{host}: "
        text = f"{need}{has}{coming}{freed}"
    else:
        free, coming = sum(p[1] for p in parts), sum(p[2] for p in parts)
        text = f"needs {len(parts)} whole hosts ({asks} slots): {free} free, {coming}{freed}"
    return Reason(WaitCode.COMING_FREE, text, {"asks": asks, "hosts": [list(p) for p in parts], "by": by})


def held(asks: int, parts: list[tuple[str, int, int]], by: list[str], notes: Collection[str] = ()) -> Reason:
    """`parts`: (host, free, held by others). `by`: labels of the runs that hold them and are not stopped."""
    free, busy = sum(p[1] for p in parts), sum(p[2] for p in parts)
    waits = f"({free} of {free + busy} free); waiting for {listed(by) or 'the work there'} to end"
    if len(parts) == 1:
        text = f"needs {slots(asks)} on one host: {parts[0][0]} is reserved for it {waits}"
    else:
        hosts = listed([p[0] for p in parts])
        text = f"needs {len(parts)} whole hosts ({asks} slots): {hosts} are reserved for it {waits}"
    data = {"asks": asks, "hosts": [list(p) for p in parts], "by": by}
    return Reason(WaitCode.HELD, "; ".join([text, *notes]), data)


def unreserved(asks: int, whole: int, at: float, waited: float, patience: float, now: float) -> Reason:
    """`at`: when it should have started at the latest, infinite if nobody knows. `waited`: since its submission."""
    needs = f"needs {whole} whole hosts ({asks} slots)" if whole > 1 else f"needs {slots(asks)} on one host"
    if at == inf:
        when = "nobody knows when it could start"
        until = f"once its submission was {duration(patience)} ago"
    else:
        when = f"it may have to wait until {clock(at, now)}"
        until = f"once that is at most {duration(patience + waited)} away"
    text = f"{needs}; no hosts are reserved for it yet: {when}, and patience allows that {until}"
    data = {"asks": asks, "latest": None if at == inf else at, "patience_seconds": patience}
    return Reason(WaitCode.UNRESERVED, text, data)


def kept_for(free: int, host: str, whom: list[str], need: int, runs: list[str]) -> Reason:
    """`runs`: labels of the runs there, which are named unless enough slots are free without them."""
    if free >= need:
        what = "the free slot" if free == 1 else f"the {free} free slots"
        text = f"{what} on {host} {'is' if free == 1 else 'are'} reserved for {listed(whom)}"
    else:
        text = f"{host} is reserved for {listed(whom)}, ahead of it"
        text += f"; {listed(runs)} {'runs' if len(runs) == 1 else 'run'} there until then" if runs else ""
    return Reason(WaitCode.KEPT_FOR, text, {"free": free, "host": host, "for": whom, "asks": need})


def no_room(
    asks: int,
    whole: int,
    notes: list[str],
    own: int = 0,
    by: Collection[str] = (),
    only: Collection[str] = (),
    is_element: bool = False,
) -> Reason:
    """`whole`: number of whole hosts it needs, 0 when it needs one host. `own`: slots that other trials of its search,
    or elements of its array (`is_element`), hold. `notes` follow after semicolons. `by`: labels of runs that the notes
    name. `only`: the hosts that its config allows.
    """
    if asks == 0:
        text = f"every {'allowed ' if only else ''}host is at its limit of zero-slot tasks"
    elif whole:
        text = f"needs {whole} whole hosts ({asks} slots)"
    elif asks == 1:
        text = f"no slot is free{' on an allowed host' if only else ''}"
    else:
        text = f"no {'allowed ' if only else ''}host has {asks} free slots"
    if only:
        notes = [only_hosts(only).sentence, *notes]
    if own:
        notes = [f"other {part_of_job(is_element).replace(' ', 's ', 1)} hold {slots(own)}", *notes]
    data = {"asks": asks, "whole_hosts": whole, "notes": notes, "own": own, "by": list(by)}
    data |= {"only": list(only)} if only else {}
    return Reason(WaitCode.NO_ROOM, "; ".join([text, *notes]), data)


def clock(at: float, now: float) -> str:
    """`12:50 UTC`, with the day if that is not today, and the year if that is not this one. Both in epoch seconds."""
    then, today = datetime.fromtimestamp(at, UTC), datetime.fromtimestamp(now, UTC).date()
    if then.date() == today:
        return then.strftime("%H:%M UTC")
    return then.strftime("%b %d %H:%M UTC" if then.year == today.year else "%b %d, %Y %H:%M UTC")


def window(what: str, starts: float, ends: float, now: float) -> Reason:
    """`what`: `maintenance drivers`, or `the reservation course for group vision`."""
    before = f"; it could neither end nor save before {clock(starts, now)}" if starts > now else ""
    data = {"window": what, "starts": starts, "ends": ends}
    return Reason(WaitCode.WINDOW, f"starts after {what}, {clock(ends, now)}{before}", data)


def weekly_window(what: str, starts: float, ends: float, has_limit: bool) -> Reason:
    """The next time of a weekly window closes the hosts again before the request could start."""
    data = {"window": what, "starts": starts, "ends": ends}
    needs = "a shorter max_time" if has_limit else "a max_time"
    return Reason(WaitCode.WINDOW, f"needs {needs}: {what} takes its hosts every week", data)


def spares_kept(names: Sequence[str]) -> str:
    """`1 host is kept as a spare (gpu-4)`."""
    if len(names) == 1:
        return f"1 host is kept as a spare ({names[0]})"
    return f"{len(names)} hosts are kept as spares ({listed(names)})"


def spare(asks: int, names: Sequence[str]) -> Reason:
    """`names`: the hosts that are kept; without them it could start now or once other work has ended."""
    text = f"needs {slots(asks)}; {spares_kept(names)}"
    return Reason(WaitCode.SPARE, text, {"asks": asks, "hosts": list(names)})


def never_beside_spares(asks: int, whole: int, hosts: int, kept: int, pool: str) -> Reason:
    """`whole`: hosts that it takes at once. `hosts`: how many the pool has, of which so many are `kept` as spares."""
    text = (
        f"needs {slots(asks)} on {whole} hosts; pool {pool} has {hosts} hosts and keeps {kept} of them as "
        f"{'a spare' if kept == 1 else 'spares'}: ask for fewer slots, or an admin can keep fewer with "
        f"`trainmaster pool edit {pool} --spare-hosts {hosts - whole}`"
    )
    return Reason(
        WaitCode.NEVER_FITS, text, {"asks": asks, "whole_hosts": whole, "hosts": hosts, "kept": kept}
    )


def young(until: float, now: float) -> str:
    """Why a run is not stopped yet. `until`: epoch seconds."""
    return f"started recently, may be stopped from {clock(until, now)} on"


def with_young(reason: Reason, label: str, until: float, now: float) -> Reason:
    """The reason of a request that may stop the run `label`, but not before `until`."""
    return replace(reason, sentence=f"{reason.sentence}; {label} {young(until, now)}")


def failed_there(hosts: Collection[str]) -> list[str]:
    """A note, where the request could not be started on some `hosts` and so waits for others."""
    return [f"it could not be started on {listed(sorted(hosts))} and waits for another host"] if hosts else []


def share(label: str, holds: int, entitled: int) -> Reason:
    text = f"{label} holds {holds}; its fair share is now {slots(entitled)}"
    return Reason(WaitCode.SHARE, text, {"holds": holds, "entitled": entitled})


def behind(jobs: int) -> Reason:
    text = f"{jobs or 'no'} job{'' if jobs == 1 else 's'} ahead"
    return Reason(WaitCode.POSITION, text, {"jobs_ahead": jobs})


def no_preemption(pool: str) -> Reason:
    return Reason(WaitCode.NO_PREEMPTION, f"preemption is off in pool {pool}, so no work is stopped for it")


def not_usable(out: list[tuple[str, str]]) -> Reason:
    """`out`: (host name, why nothing is placed there, or not on all of it)."""
    text = f"not available to it: {listed([f'{name} ({why})' for name, why in out])}"
    return Reason(WaitCode.HOSTS_OFF, text, {"hosts": dict(out)})


def more_hosts(count: int) -> Reason:
    """After the first so many."""
    text = f"{count} more host{' also has' if count == 1 else 's also have'} too few free slots"
    return Reason(WaitCode.HELD, text, {"hosts": count})


def whole_hosts(asks: int, ways: list[tuple[int, int, int, int]]) -> Reason:
    """`ways`: (hosts that it takes, slots of each, how many of that size are free as a whole, how many there are)."""
    shown = [
        f"{count} of {size} slots ({free} of {there} entirely free)" for count, size, free, there in ways
    ]
    text = f"needs {slots(asks)}, more than one host has, so it takes whole hosts: {' or '.join(shown)}"
    return Reason(WaitCode.NO_ROOM, text, {"asks": asks, "ways": [list(way) for way in ways]})


def host_held(
    host: str, free: int, need: int, runs: list[tuple[str, int, str]], reserved_for: str | None = None
) -> Reason:
    """`runs`: (label, slots held on this host, why it is not stopped for the one that waits).

    `reserved_for`: what is ahead of it and has this host reserved.
    """
    who = listed([f"{label} ({held}, {why})" for label, held, why in runs], most=4) or "others"
    parts = [f"{host}: {free} free, {need} needed"]
    parts += [f"reserved for {reserved_for}"] if reserved_for else []
    parts += [f"held by {who}"] if runs or not reserved_for else []
    data = {"host": host, "free": free, "need": need, "runs": [list(r) for r in runs]}
    return Reason(WaitCode.HELD, "; ".join(parts), data | ({"for": [reserved_for]} if reserved_for else {}))
