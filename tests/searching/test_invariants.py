"""What holds of every search, whatever its trials do and in whatever order it hears of it."""

import json
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import searching
from searching import (
    Again,
    Create,
    Event,
    ExitReason,
    Operation,
    Park,
    Promote,
    Shutdown,
    Stop,
    TrialExited,
    ValidationReported,
    rungs,
)

SPACE = {
    "x": {"type": "int", "minval": 0, "maxval": 5, "count": 3},
    "lr": {"type": "double", "minval": 0, "maxval": 1, "count": 2},
}
LONGEST = 20


@st.composite
def searchers(draw: st.DrawFn) -> dict[str, Any]:
    common: dict[str, Any] = {
        "smaller_is_better": draw(st.booleans()),
        "max_concurrent_trials": draw(st.sampled_from([0, 1, 3, 7])),
        "max_length": draw(st.sampled_from([1, 5, LONGEST])),
    }
    name = draw(st.sampled_from(["single", "grid", "random", *["async_halving", "adaptive_asha"] * 3]))
    if name in ("single", "grid"):
        return {"name": name, **common}
    common["max_trials"] = draw(st.integers(1, 12))
    if name != "random":
        common |= {
            "stop_once": draw(st.booleans()),
            "divisor": draw(st.sampled_from([1.5, 2, 3, 4])),
            "num_rungs": draw(st.integers(1, 4)),
            "max_rungs": draw(st.integers(1, 5)),
            "mode": draw(st.sampled_from(["standard", "conservative", "aggressive"])),
        }
    return {"name": name, **common}


class World:
    """Trials that report, fail and end as chance has it; it keeps every rule that a search must keep of them."""

    def __init__(self, searcher: dict[str, Any], seed: int, chance: Random) -> None:
        self.searcher, self.seed, self.chance = searcher, seed, chance
        self.log: list[Event] = []
        self.at: dict[str, int] = {}  # request id -> units trained
        self.on: set[str] = set()
        self.ending: set[str] = set()
        self.over: Shutdown | None = None
        self.invalid = 0
        self.state, operations = searching.start(searcher, SPACE, seed)
        self.follow(operations)

    def follow(self, operations: list[Operation]) -> None:
        for operation in operations:
            assert self.over is None, "nothing follows the end"
            if isinstance(operation, Shutdown):
                self.over = operation
                continue
            name = operation.request_id
            assert not isinstance(operation, Again)
            if isinstance(operation, Create):
                assert name not in self.at
                self.at[name] = 0
                self.on.add(name)
            elif isinstance(operation, Promote):
                assert operation.why is not None and operation.why.place <= operation.why.keeps
                assert name not in self.ending
                self.on.add(name)
            elif isinstance(operation, Park):
                self.on.remove(name)
            elif isinstance(operation, Stop):
                self.on.discard(name)
                self.ending.add(name)

    def step(self) -> None:
        """One event of a trial that has not ended; parked ones say nothing, but are killed now and then."""
        parked = sorted(searching.parked(self.state))
        if parked and self.chance.random() < 0.1:
            self.tell(TrialExited(self.chance.choice(parked), ExitReason.CANCELED))
            return
        living = sorted(self.on | self.ending) or sorted(self.at)
        name, chance = self.chance.choice(living), self.chance.random()
        if name in self.ending and chance < 0.5:
            self.tell(TrialExited(name, ExitReason.COMPLETED))
        elif chance < 0.12:
            self.tell(TrialExited(name, self.chance.choice(list(ExitReason))))
        else:
            self.at[name] += self.chance.randint(1, 6)
            metric = self.chance.choice([self.chance.random(), 0.5, float("nan")])
            self.tell(ValidationReported(name, metric, self.at[name], at=len(self.log)))

    def tell(self, event: Event) -> None:
        self.log.append(event)
        if isinstance(event, TrialExited):
            self.invalid += event.reason == ExitReason.INVALID_HP and event.request_id in self.on
            self.on.discard(event.request_id)
            self.ending.discard(event.request_id)
        before = json.dumps(self.state, sort_keys=True, allow_nan=False)
        self.state, operations = searching.on_event(self.state, event)
        if len(self.log) % 8 == 0:
            assert searching.on_event(json.loads(before), event) == (self.state, operations)
        self.follow(operations)


@settings(max_examples=150, deadline=None)
@given(searcher=searchers(), seed=st.integers(0, 2**31 - 1), chance=st.integers(0, 2**32))
def test_a_search_keeps_its_rules_and_ends(searcher: dict[str, Any], seed: int, chance: int) -> None:
    world = World(searcher, seed, Random(chance))
    while world.over is None:
        world.step()
        assert len(world.log) < 3_000, "it ends"
        check_trials(world)
        check_rungs(world)
    assert not world.on and not world.ending, "every trial had ended"
    assert searching.progress(world.state) == 1.0 or world.over != Shutdown()
    check_replay(world)


def check_trials(world: World) -> None:
    most = world.searcher.get("max_trials", 1 if world.searcher["name"] == "single" else 3 * 2)
    assert len(world.at) - world.invalid <= most, "an invalid sample is replaced, no other"
    assert 0 <= searching.progress(world.state) <= 1
    at_once = world.searcher["max_concurrent_trials"]
    if at_once and world.searcher["name"] != "single":
        assert len(world.on) <= max(at_once, len(rungs.tree(world.state)))


def check_rungs(world: World) -> None:
    """Those that went on are as good as any that did not, among those that came before or with them."""
    sign = 1 if world.searcher["smaller_is_better"] else -1
    for bracket in rungs.tree(world.state):
        assert bracket.made <= bracket.trials
        assert [rung.units for rung in bracket.rungs] == sorted(rung.units for rung in bracket.rungs)
        assert not bracket.rungs or bracket.rungs[-1].units <= world.searcher["max_length"], (
            "no longer than the longest"
        )
        for rung in bracket.rungs:
            reached = [each for each in rung.entries if each.metric is not None]
            assert [sign * (each.metric or 0) for each in reached] == sorted(
                sign * (each.metric or 0) for each in reached
            )
            if not searching.halving.stops_once(world.searcher):
                waiting = [each.place for each in reached if each.outcome == "waiting"]
                came = sum(each.place is not None or each.outcome == "gave up" for each in rung.entries)
                share = int(came / world.searcher["divisor"]) if rung.share else 0
                assert all(place is not None and place > share for place in waiting), (
                    "the best are not kept waiting"
                )


def check_replay(world: World) -> None:
    """The log of events, told anew, gives the same state byte for byte, and again when it is told twice."""
    state, _ = searching.start(world.searcher, SPACE, world.seed)
    for event in world.log:
        searching.advance(state, event)
    assert json.dumps(state, sort_keys=True) == json.dumps(world.state, sort_keys=True)
    for event in world.log:
        assert searching.advance(state, event) == []
    assert json.dumps(state, sort_keys=True) == json.dumps(world.state, sort_keys=True)
