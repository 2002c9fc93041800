"""A policy is one object in one list: what it states holds in the planner, its explanation and its forecast."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduling import policies
from scheduling.explain import explain
from scheduling.forecast import forecast
from scheduling.plan import decide
from scheduling.policy import Policy
from scheduling.prospects import Prospects
from scheduling.runs import Rules
from scheduling.world import HostView, Placement, PoolView, Request, SlotView, Snapshot

ROOT = Path(__file__).parents[2]


class Fifo(Policy):
    """First come, first served, and nothing is stopped: the defaults of a policy."""

    name = "fifo"
    label = "FIFO"
    summary = "by submission"
    hint = "jobs start in the order of their submission"
    dialect = "SCHEDULER_TYPE_UNSPECIFIED"
    order = ("submitted_at", "id")
    preempts = False

    def rules(self, snapshot: Snapshot, prospects: Prospects) -> Rules:
        return Rules(sorted(snapshot.requests, key=lambda one: one.submitted_at))


def test_a_third_policy_needs_only_to_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(policies._BY_NAME, "fifo", Fifo())
    host = HostView("h", "h", (SlotView(1, 0, held_by="a"), SlotView(2, 1)))
    runs = Placement("a", {"h": (1,)}, 0.0, ends=(150.0, 250.0))
    world = Snapshot(
        100.0,
        PoolView(scheduler="fifo", preemption=True),
        (host,),
        (
            Request("t0", "j0", "exp 0", 1, priority=99, running=runs),
            Request("t2", "j2", "exp 2", 1, priority=1, submitted_at=2.0, lasts=(10.0, 20.0)),
            Request("t1", "j1", "exp 1", 2, priority=50, submitted_at=1.0, lasts=(10.0, 20.0)),
        ),
    )
    plan = decide(world)
    assert plan.order == ("t0", "t1", "t2") and not plan.starts and not plan.releases
    told = [reason.sentence for reason in explain(world, "t1", plan)]
    assert "1 job ahead" in told and any("exp 0 (1, runs until it ends)" in each for each in told)
    spans = forecast(world, plan).spans
    assert spans["t1"][0] > 140 and spans["t1"] < spans["t2"]


@pytest.mark.parametrize("name", [name for name, _ in policies.CHOICES])
def test_a_policy_states_everything_that_others_ask(name: str) -> None:
    policy = policies.of(name)
    assert all((policy.label, policy.summary, policy.hint)) and policy.dialect.startswith("SCHEDULER_TYPE_")
    assert set(policy.knobs) <= {"priority", "position", "weight"}
    assert "position" not in policy.knobs or policy.order[-2:] == ("position", "id")


def test_no_other_code_names_a_policy_to_decide_by_it() -> None:
    """Comparisons with a policy's name would have to be found again for each new policy."""
    rooms = [
        "embedded",
        "webui",
        "shown",
        "queue",
        "experiments",
        "commands",
        "submissions",
        "notifications",
        "metrics",
        "logs",
    ]
    named = [
        str(path.relative_to(ROOT))
        for room in [*rooms, "templates", "static"]
        for path in sorted((ROOT / room).rglob("*"))
        if path.suffix in {".py", ".html", ".js"} and "migrations" not in path.parts
        if '"fair_share"' in path.read_text() or "FAIR_SHARE" in path.read_text()
    ]
    assert named == ["queue/scheduling/fair_share.py"]
