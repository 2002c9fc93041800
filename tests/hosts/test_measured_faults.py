"""What a host measures of itself, and which of it is a sign: pure, over looks as hosts answer them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hosts.health import faults, measured, verdicts
from hosts.health.faults import Found, Use
from trainmaster.kernel_signs import Sign

NOW = 1_700_000_000.0
ASKED = measured.Asked({"GPU-0": "0000:01:00"}, ("/mine",), ("/srv",))
GPU: dict[str, Any] = {
    "ecc_volatile": 0, "ecc_aggregate": 4, "rows_corrected": 1, "rows_uncorrected": 2, "rows_pending": 0,
    "rows_failed": 0, "throttle": 0, "width": 16, "width_most": 16, "generation": 5, "generation_most": 5,
    "pages": 0, "pstate": 0, "busy": 93, "memory_used": 7 << 30, "memory_total": 80 << 30, "processes": 2,
}  # fmt: skip
PORT = {"state": "ACTIVE", "layer": "InfiniBand", "rate": 200.0, "link_downed": 3, "symbol_error": 0}
CARD = {"state": "up", "rate": 25000, "carrier_changes": 2}
FULL_SHM = {"used": 60 << 30, "total": 64 << 30, "left": 40 << 30, "files": 7}
FOLDER = {"free": 500 << 30, "total": 900 << 30, "read_only": False}


def answer(**changed: Any) -> dict[str, Any]:
    """A healthy host's, but for what is changed."""
    return {
        "boot": "b1", "at": 5_000_000, "gpus": {"GPU-0": GPU}, "ports": {"mlx5_0/1": PORT}, "cards": {"eth0": CARD},
        "folders": {".": FOLDER, "/srv": FOLDER, "/mine": FOLDER}, "runs": {"a.1.0": {"tm": 3, "eve": 9}},
        "shm": {"used": 1 << 30, "total": 64 << 30, "left": 0, "files": 0}, "denied": [], "now": NOW, "driver_late": 0,
        "account": "tm", **changed,
    }  # fmt: skip


def seen(
    told: object, over: dict[str, str | None] | None = None, asked: measured.Asked = ASKED
) -> measured.Look:
    look = measured.read(told, asked, server_now=NOW, run_folder="/var/tm", over=over or {})
    assert look is not None
    return look


class Watch:
    """The looks at one host, one after another."""

    def __init__(self, *, log_is_read: bool = True, use: Use = Use()) -> None:  # noqa: B008  # it is frozen
        self.kept: dict[str, Any] = {}
        self.over: list[tuple[str, str]] = []
        self.use, self.asked, self.log_is_read = use, ASKED, log_is_read

    def look(
        self, told: object = None, times: int = 1, over: dict[str, str | None] | None = None
    ) -> list[Found]:
        """What is told newly by so many looks that answer the same."""
        found = []
        for _ in range(times):
            look = seen(answer() if told is None else told, over, self.asked)
            step = faults.step(self.kept, look, log_is_read=self.log_is_read, use=self.use)
            self.kept, self.over = step.kept, self.over + step.over
            found += step.told
        return found


def gpu(**changed: Any) -> dict[str, Any]:
    return answer(gpus={"GPU-0": {**GPU, **changed}})


def folder(name: str, **changed: Any) -> dict[str, Any]:
    return answer(folders={**answer()["folders"], name: {**FOLDER, **changed}})


#: kind -> (what is answered, the device, a part of the evidence, what is taken out of use)
STATES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "gpu_lost": (answer(gpus={"GPU-0": {"lost": 1}}), "0000:01:00", "NVML_ERROR_GPU_IS_LOST", "gpu"),
    "gpu_needs_reset": (answer(gpus={"GPU-0": {"reset": 1}}), "0000:01:00", "NVML_ERROR_RESET_REQUIRED", "gpu"),
    "ecc_uncorrected": (gpu(ecc_volatile=2, ecc_aggregate=6), "0000:01:00", "0 -> 2 since the driver was", ""),
    "rows_failed": (gpu(rows_failed=1), "0000:01:00", "1 rows remapped after corrected errors, 2 after others", "gpu"),
    "rows_pending": (gpu(rows_pending=1), "0000:01:00", "waits for a reset", ""),
    "pages_full": (gpu(pages=61), "0000:01:00", "61 retired pages of 60", "gpu"),
    "gpu_hot": (gpu(throttle=0x48), "0000:01:00", "0x48", ""),
    "gpu_power_brake": (gpu(throttle=0x88), "0000:01:00", "0x88", ""),
    "gpu_slowed": (gpu(throttle=0x0C), "0000:01:00", "0xc", ""),
    "pcie_narrow": (gpu(width=8), "0000:01:00", "x8 of x16", ""),
    "pcie_slow": (gpu(generation=3), "0000:01:00", "generation 3 of 5", ""),
    "gpu_memory_held": (gpu(processes=0), "0000:01:00", "7.0 GiB of 80.0 GiB", ""),
    "port_down": (answer(ports={"mlx5_0/1": {**PORT, "state": "DOWN"}}), "mlx5_0/1", "it was active before", "host"),
    "port_slow": (answer(ports={"mlx5_0/1": {**PORT, "rate": 100.0}}), "mlx5_0/1", "100 Gbit/s, and it had 200", ""),
    "port_flaps": (answer(ports={"mlx5_0/1": {**PORT, "link_downed": 4}}), "mlx5_0/1", "link_downed 3 -> 4", ""),
    "port_gone": (answer(ports={}), "mlx5_0/1", "it is not there any more", ""),
    "card_gone": (answer(cards={}), "eth0", "it is not there any more", ""),
    "card_down": (answer(cards={"eth0": {"state": "down"}}), "eth0", "it was up before", ""),
    "card_slow": (answer(cards={"eth0": {**CARD, "rate": 1000}}), "eth0", "1000 Mbit/s, and it had 25000", ""),
    "card_flaps": (answer(cards={"eth0": {**CARD, "carrier_changes": 4}}), "eth0", "carrier_changes 2 -> 4", ""),
    "storage_hangs": (answer(folders={"/srv": {"late": 75.0}}), "/srv", "no answer for 75 s", "host"),
    "storage_read_only": (folder(".", read_only=True), "/var/tm", "can only be read", "host"),
    "folder_hangs": (answer(folders={"/mine": {"late": 75.0}}), "/mine", "no answer for 75 s", ""),
    "folder_read_only": (folder("/mine", read_only=True), "/mine", "can only be read", ""),
    "disk_full": (folder(".", free=100 << 20), "/var/tm", "0.1 GiB of 900.0 GiB are free", ""),
    "driver_hangs": (answer(gpus={}, driver_late=61.0), "driver", "no answer for 61 s", "host"),
    "clock_off": (answer(now=NOW - 7.5), "clock", "7.5 s behind the server's", ""),
    "shm_left": (answer(shm=FULL_SHM), "/dev/shm", "40.0 GiB by 7 files", ""),
}  # fmt: skip


@pytest.mark.parametrize("kind", STATES)
def test_a_state_is_told_once_it_has_lasted_and_again_after_it_was_over(kind: str) -> None:
    told, device, evidence, scope = STATES[kind]
    rule, watch = faults.rule_of(kind), Watch()
    assert watch.look() == []
    assert watch.look(told, times=rule.after - 1) == []
    [found] = watch.look(told)
    assert (found.kind, found.device) == (kind, device) and evidence in found.line
    verdict = verdicts.of(Sign(found.kind, 0, found.device))
    assert (verdict.scope, verdict.heals) == (scope, scope == "host") and verdict.sentence.count(".") >= 2
    counted = kind in ("ecc_uncorrected", "port_flaps", "card_flaps")  # no state: it rises in one look
    assert watch.look(told, times=30) == [] and (counted or watch.over == [])
    watch.look(times=rule.gone)
    assert (kind, device) in watch.over
    if not counted:
        assert [each.kind for each in watch.look(told, times=rule.after)] == [kind]


def test_a_healthy_host_tells_nothing_and_nothing_changes_for_it() -> None:
    watch = Watch()
    watch.look()
    kept = watch.kept
    assert watch.look(times=20) == [] and watch.kept == kept
    idle = gpu(generation=1, pstate=8, busy=0, memory_used=600 << 20, processes=0)
    assert watch.look(idle, times=20) == [], "an idle GPU has a slow link, and the driver some of its memory"


def test_without_the_kernels_log_memory_errors_decide_alone() -> None:
    watch = Watch(log_is_read=False)
    watch.look()
    [found] = watch.look(gpu(ecc_volatile=1))
    assert found.kind == "ecc_unexplained" and verdicts.of(Sign(found.kind)).scope == "gpu"


def test_a_counter_that_begins_again_is_no_error() -> None:
    watch = Watch()
    watch.look(gpu(ecc_volatile=9))
    assert watch.look(gpu(ecc_volatile=1), times=3) == []


def test_a_port_that_is_not_there_any_more_is_told() -> None:
    watch = Watch()
    watch.look()
    [found] = watch.look(answer(ports={}), times=4)
    assert found.kind == "port_gone" and verdicts.of(Sign(found.kind)).scope == ""
    assert Watch().look(answer(ports={"mlx5_9/1": {"state": "DOWN"}}), times=9) == [], "it was never up"


def test_what_cannot_be_looked_at_stays_as_it_was() -> None:
    watch = Watch()
    watch.look(gpu(rows_failed=1), times=2)
    watch.look(answer(gpus={}, driver_late=9.0), times=30)
    assert ("rows_failed", "0000:01:00") in set(faults.standing(watch.kept)) and watch.over == []
    assert watch.look(answer(driver_late=70.0), times=2)[0].kind == "driver_hangs"
    watch.look(answer(driver_late=9.0), times=30)
    assert ("driver_hangs", "driver") in set(faults.standing(watch.kept)), (
        "it is asked by another process since"
    )


def test_after_a_reboot_a_state_is_told_again_but_not_a_link_that_people_left_down() -> None:
    down = answer(ports={"mlx5_0/1": {**PORT, "state": "DOWN"}}, gpus={"GPU-0": {**GPU, "rows_failed": 1}})
    in_use, out = Watch(), Watch(use=Use(host=True))
    withheld = Watch(use=Use(waits=frozenset({("port_down", "mlx5_0/1")})))
    for watch in (in_use, out, withheld):
        watch.look()
        assert {each.kind for each in watch.look(down, times=4)} == {"port_down", "rows_failed"}
    assert {each.kind for each in in_use.look({**down, "boot": "b2"}, times=9)} == {"rows_failed"}
    assert {each.kind for each in out.look({**down, "boot": "b2"}, times=9)} == {"port_down", "rows_failed"}
    assert {each.kind for each in withheld.look({**down, "boot": "b2"}, times=9)} == {
        "port_down",
        "rows_failed",
    }


OUT = [
    ("port_down", answer(ports={"mlx5_0/1": {**PORT, "state": "DOWN"}}), "mlx5_0/1"),
    ("storage_hangs", answer(folders={"/srv": {"late": 75.0}}), "/srv"),
    ("driver_hangs", answer(driver_late=75.0), "driver"),
    ("rows_failed", gpu(rows_failed=1), "0000:01:00"),
]
INIT, ARMED = ({"mlx5_0/1": {**PORT, "state": state}} for state in ("INIT", "ARMED"))
#: answers in which nothing of all that was looked at
UNSEEN: list[dict[str, Any]] = [
    {"folders": {"/srv": {"late": 9.0}}, "driver_late": 9.0, "gpus": {}, "ports": INIT},
    {"folders": {"/srv": {"missing": True, "error": "Stale"}}, "driver_late": None, "gpus": {}, "ports": None},
    {"folders": {}, "driver_late": None, "gpus": {"GPU-0": {"lost": 1}}, "ports": ARMED},
]  # fmt: skip


@pytest.mark.parametrize("unseen", UNSEEN)
@pytest.mark.parametrize(("kind", "told", "device"), OUT)
def test_what_is_out_stays_so_until_its_device_was_seen_to_be_well_also_after_a_reboot(
    kind: str, told: dict[str, Any], device: str, unseen: dict[str, Any]
) -> None:
    watch = Watch(use=Use(host=True, gpus=frozenset({"0000:01:00"})))
    watch.look()
    watch.look(told, times=9)
    for boot in ("b1", "b2", "b3"):
        watch.look(answer(**unseen, boot=boot), times=30)
        watch.look(answer(boot=boot), times=9 if boot != "b1" else 0)
        assert (kind, device) in set(faults.standing(watch.kept)), boot
    watch.look(answer(boot="b3"))
    assert (kind, device) not in set(faults.standing(watch.kept))


def test_a_fault_that_comes_and_goes_after_a_reboot_is_not_over_before_it_stayed_away() -> None:
    down = answer(ports={"mlx5_0/1": {**PORT, "state": "DOWN"}}, boot="b2")
    watch = Watch(use=Use(host=True))
    watch.look()
    watch.look({**down, "boot": "b1"}, times=4)
    for _ in range(5):
        watch.look(answer(boot="b2"), times=6)
        watch.look(down)
    assert ("port_down", "mlx5_0/1") in set(faults.standing(watch.kept))


def test_a_port_that_has_another_name_since_the_reboot_keeps_nothing_out_for_good() -> None:
    renamed = answer(ports={"ibp1/1": PORT}, boot="b2")
    watch = Watch(use=Use(host=True))
    watch.look()
    watch.look(answer(ports={"mlx5_0/1": {**PORT, "state": "DOWN"}}), times=4)
    assert [each.kind for each in watch.look(renamed, times=10)] == ["port_gone"]
    assert faults.is_gone(watch.kept, "mlx5_0/1")
    assert not any(verdicts.of(Sign(kind)).scope for kind, _ in faults.standing(watch.kept))
    watch.look({**renamed, "boot": "b3"}, times=9)
    assert list(faults.standing(watch.kept)) == [] and "port mlx5_0/1" not in watch.kept["numbers"]


def test_a_port_of_ethernet_is_a_network_card() -> None:
    watch = Watch()
    roce = {**PORT, "layer": "Ethernet"}
    watch.look(answer(ports={"mlx5_0/1": roce}))
    [found] = watch.look(answer(ports={"mlx5_0/1": {**roce, "state": "DOWN"}}), times=9)
    assert found.kind == "card_down" and verdicts.of(Sign(found.kind)).scope == ""


def test_a_folder_of_the_settings_that_was_never_writable_may_be_so_on_purpose() -> None:
    watch = Watch()
    assert watch.look(folder("/srv", read_only=True), times=9) == []
    watch.look()
    [found] = watch.look(folder("/srv", read_only=True), times=9)
    assert (found.kind, found.device) == ("storage_read_only", "/srv")
    assert Watch().look(folder(".", read_only=True), times=9)[0].kind == "storage_read_only"


def test_a_folder_that_is_not_asked_about_any_more_keeps_nothing_out() -> None:
    watch = Watch()
    watch.look(answer(folders={"/srv": {"late": 75.0}}), times=2)
    watch.asked = measured.Asked(ASKED.gpus, ASKED.folders, ())
    watch.look()
    assert list(faults.standing(watch.kept)) == []


def test_memory_errors_are_counted_for_one_gpu_in_one_boot() -> None:
    watch = Watch()
    watch.look()
    assert watch.look(gpu(ecc_aggregate=6) | {"boot": "b2"}, times=3) == []
    watch.asked = measured.Asked({"GPU-7": "0000:01:00"})
    other = {**GPU, "ecc_volatile": 7, "ecc_aggregate": 9}
    assert watch.look(answer(gpus={"GPU-7": other}, boot="b2"), times=3) == []
    assert (
        watch.look(answer(gpus={"GPU-7": {**other, "ecc_volatile": 8}}, boot="b2"))[0].kind
        == "ecc_uncorrected"
    )


def test_processes_are_left_behind_only_by_runs_that_the_server_knows_to_have_ended() -> None:
    watch = Watch()
    assert watch.look(times=9) == []
    assert watch.look(times=9, over={"a.1.0": "ada"}) == [], "other accounts give theirs any marker"
    [found] = watch.look(times=9, over={"a.1.0": None})
    assert (found.kind, found.line) == ("run_left", "3 processes of the run a.1.0, which has ended")
    watch.look(answer(runs={}))
    assert watch.over == [("run_left", "a.1.0")]


@pytest.mark.parametrize(
    "told", [None, [], 7, {}, {"boot": 7, "at": 1}, {"boot": "b", "at": "1"}, {"boot": "", "at": 1}]
)
def test_an_answer_of_another_form_is_no_look(told: object) -> None:
    assert measured.read(told, ASKED, server_now=NOW, run_folder="/var/tm", over={}) is None


def test_nothing_is_taken_that_was_not_asked() -> None:
    look = seen(answer(gpus={"GPU-9": GPU, "GPU-0": 3}, folders={"/etc": FOLDER}, denied=["a\x00b" * 999, 4]))
    kinds = {kind for kind, _ in look.subjects}
    assert measured.GPU not in kinds and measured.STORAGE not in kinds and measured.FOLDER not in kinds
    assert len(look.denied) == 1 and len(look.denied[0]) < 300 and "\x00" not in look.denied[0]


NONSENSE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = [
    "boot",
    "at",
    "gpus",
    "ports",
    "cards",
    "folders",
    "runs",
    "shm",
    "denied",
    "now",
    "driver_late",
    "account",
]
GPU_NAMES = [*GPU, "lost", "reset", "pages", "pages_pending"]


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(NAMES[2:]), NONSENSE, max_size=3),
            st.dictionaries(st.sampled_from(GPU_NAMES), NONSENSE | st.integers(0, 2**40), max_size=4),
            st.sampled_from(["b1", "b1", "b1", "b2"]),
        ),
        max_size=12,
    )
)
def test_whatever_a_host_answers_little_is_kept_and_only_what_is_asked_is_told(looks: list[Any]) -> None:
    watch = Watch()
    for changed, of_gpu, boot in looks:
        told = {**answer(boot=boot), "gpus": {"GPU-0": {**GPU, **of_gpu}}, **changed}
        for found in watch.look(told):
            assert verdicts.of(Sign(found.kind, 0, found.device)) != verdicts._UNKNOWN
            assert not verdicts.of(Sign(found.kind)).fails or found.kind in ("gpu_lost", "gpu_needs_reset")
            assert len(found.line) < 500 and found.line.isprintable() and len(found.device) <= 64
        assert len(watch.kept["numbers"]) <= 200 and len(watch.kept["standing"]) <= 60
