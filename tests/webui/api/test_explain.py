"""All blockers of a job over REST, beside the reason of the last pass."""

from collections.abc import Callable

from dispatch.passes import pool_pass
from hosts import registry
from hosts.models import Host, Slot
from hosts.pools import default_pool
from tests.rig.api import CONFIG, Cast, Json

Submit = Callable[..., Json]


def asking(slots: int) -> str:
    return CONFIG.replace("slots_per_trial: 1", f"slots_per_trial: {slots}")


def explained(cast: Cast, job_id: str) -> tuple[list[str], str | None]:
    """The sentences of all blockers, and that of the stored plan."""
    (task,) = cast.vic.get(f"jobs/{job_id}/explain")["tasks"]
    return [blocker["sentence"] for blocker in task["blockers"]], (task.get("reason") or {}).get("sentence")


def test_a_job_that_never_fits_has_that_one_reason_even_before_a_pass(
    cast: Cast, submit: Submit, host: Host
) -> None:
    for index in range(2, 8):
        Slot.objects.create(host=host, index=index, kind="cuda")
    job = submit(config=asking(12))["jobId"]
    never = "needs 12 slots; hosts here have 8: ask for 8 or fewer, or a multiple of 8"
    assert explained(cast, job) == ([never], None)
    pool_pass.run(default_pool().pk)
    assert explained(cast, job) == ([never], never)


def test_a_job_behind_another_is_told_who_holds_the_slots_and_its_place(
    cast: Cast, submit: Submit, host: Host
) -> None:
    first = submit(config=asking(2))
    pool_pass.run(default_pool().pk)
    second = submit(config=asking(2))["jobId"]
    pool_pass.run(default_pool().pk)
    sentences, reason = explained(cast, second)
    assert sentences[0] == reason
    assert "1 job ahead" in sentences
    assert any(
        sentence.startswith("gpu1: 0 free, 2 needed") and f"exp {first['id']}" in sentence
        for sentence in sentences
    )
    answer = cast.vic.get(f"jobs/{first['jobId']}/explain")["tasks"][0]
    assert answer["state"] == "RUNNING"
    assert "blockers" not in answer


def test_a_disabled_host_is_named_now_while_the_plan_is_still_the_old_one(
    cast: Cast, submit: Submit, host: Host
) -> None:
    job = submit(config=asking(2))["jobId"]
    assert explained(cast, job) == ([], None)
    registry.disable(host.pk, actor="user:admin")
    sentences, _ = explained(cast, job)
    assert any("gpu1 is disabled" in sentence for sentence in sentences)


def test_a_paused_job_waits_for_its_owner_alone(cast: Cast, submit: Submit, host: Host) -> None:
    experiment = submit()
    cast.ada.post(f"experiments/{experiment['id']}/pause")
    answer = cast.vic.get(f"jobs/{experiment['jobId']}/explain")
    assert answer["state"] == "PAUSED"
    assert not any(task.get("blockers") for task in answer["tasks"])
