"""What Slurm of each version answers is read as it means it, whatever users have written into it."""

from __future__ import annotations

import re
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.refusals import Refusal
from hosts.slurm import arguments, ends, facts, reasons, sacct, scontrol, settings, squeue, texts
from hosts.slurm.facts import ClusterFacts
from hosts.slurm.scontrol import Node, NodeState, Partition
from hosts.slurm.settings import JobSettings, SlurmSettings
from hosts.slurm.squeue import Job
from jobs.states import NOT_THE_CODES_FAULT, Reason
from tests.rig import slurm_words
from trainmaster import slurm_settings

RELEASES = sorted(slurm_words.VERSIONS)
HOSTILE = "a|b\n#mark\x1f1|2|N/A|RUNNING|root|9|9|gpu:8|gpu|N/A|g[1-9]|None|trainmaster"
WORLD: dict[str, Any] = {
    "jobs": [
        {"id": 1, "state": "RUNNING", "user": "ada", "nodes": 2, "cpus": 8, "gpus": "a100:4", "nodelist": "g[1-2]",
         "start": "2026-01-01T00:00:00", "comment": "3f2a", "name": HOSTILE},
        {"id": 2, "state": "PENDING", "user": "bob", "gpus": "2", "reason": "Priority", "comment": HOSTILE},
        {"id": 3, "state": "PENDING", "user": "bob", "array": "0-99%3", "reason": "BeginTime"},
        {"id": 4, "state": "PENDING", "user": "cyd", "reason": "ReqNodeNotAvail, UnavailableNodes:g[1-3]"},
        {"id": 5, "state": "COMPLETED", "user": "cyd", "gpus": "a100:8", "nodelist": "g1"},
        {"id": 6, "state": "FAILED", "user": "cyd", "gpus": "a100:8", "nodelist": "g2"},
    ],
    "partitions": [{"name": "gpu", "nodes": "g[1-2]", "default": "YES", "limit": "1-00:00:00"},
                   {"name": "old", "nodes": "(null)", "state": "DOWN", "accounts": "phys,chem"}],
    "nodes": [
        {"name": "g1", "type": "a100", "gpus": 8, "gpus_used": 2, "used": 4, "state": "MIXED"},
        {"name": "g2", "type": "a100", "gpus": 8, "gpus_used": 3, "counted": False, "state": "IDLE+DRAIN",
         "reason": "State=IDLE Gres=gpu:99 bad = yes"},
        {"name": "c1", "partitions": "gpu,cpu", "state": "DOWN*"},
    ],
}  # fmt: skip
MARK = "#mark\x1f"


def asked(release: str, words: tuple[str, ...], mark: str = "") -> str:
    return slurm_words.answer(release, list(words), WORLD)


@pytest.mark.parametrize("release", RELEASES)
def test_jobs_are_read_whatever_users_wrote(release: str) -> None:
    mark = "#6f1d\x1f"  # not the one that a user could have written
    found = squeue.jobs(asked(release, squeue.command(mark)), mark)
    assert [job.id for job in found] == ["1", "2", "3_[0-99%3]", "4", "5", "6"]
    first, second, third, fourth, *_ = found
    assert (first.state, first.user, first.nodes, first.cpus, first.gpus) == ("RUNNING", "ada", 2, 8, 8)
    assert texts.nodes(first.nodelist) == ["g1", "g2"]
    assert first.comment == "3f2a"
    assert first.starts_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert second.comment == HOSTILE and second.starts_at is None and second.gpus == 2
    assert (third.elements, third.array_id, third.comment) == (100, "3", "")
    assert fourth.reason == "ReqNodeNotAvail, UnavailableNodes:g[1-3]"
    mine = squeue.jobs(asked(release, squeue.command(mark, user="ada")), mark)
    assert [job.id for job in mine] == ["1"]
    said = (
        "squeue: error: Invalid user: bob\n\nsqueue: error: Invalid user: 12345678\n\nsqueue: error: other\n"
    )
    assert squeue.unknown_users(said) == {"bob", "12345678"}


@pytest.mark.parametrize("release", RELEASES)
def test_nodes_partitions_and_config_are_read(release: str) -> None:
    first, second, third = scontrol.nodes(asked(release, scontrol.NODE))
    assert (first.name, first.cpus, first.cpus_used, first.memory_mb) == ("g1", 64, 4, 512000)
    assert first.gpus == {"a100": 8} and first.gpus_used == {"a100": 2} and first.state.takes_jobs
    assert second.gpus == {"a100": 8} and second.gpus_used == {"a100": 3}
    assert str(second.state) == "IDLE+DRAIN" and not second.state.takes_jobs
    assert second.reason == "State=IDLE Gres=gpu:99 bad = yes [root@2026-01-01T00:00:00]"
    assert third.gpus == {} and third.partitions == ("gpu", "cpu")
    assert third.state == NodeState("DOWN", frozenset({"NOT_RESPONDING"}))
    gpu, old = scontrol.partitions(asked(release, scontrol.PARTITION))
    assert gpu.is_default and gpu.takes_jobs and gpu.nodes == ("g1", "g2") and gpu.max_seconds == 86400
    assert not old.takes_jobs and old.nodes == () and old.allow_accounts == ("phys", "chem")
    config = scontrol.config(asked(release, scontrol.CONFIG))
    assert config["ClusterName"] == "stars" and not sacct.is_kept(config)
    assert ".".join(f"{n:02d}" for n in scontrol.version(config["SLURM_VERSION"])) == release


def test_options_that_old_versions_lack_are_refused_by_the_stand_in() -> None:
    with pytest.raises(slurm_words.Wrong, match="--only-job-state"):
        slurm_words.answer("20.11", ["squeue", "--only-job-state", "-o", "%i"], WORLD)


@pytest.mark.parametrize(
    ("text", "base", "flags"),
    [
        ("IDLE", "IDLE", set()), ("IDLE+DRAIN", "IDLE", {"DRAIN"}), ("ALLOCATED*", "ALLOCATED", {"NOT_RESPONDING"}),
        ("idle~", "IDLE", {"POWERED_DOWN"}), ("IDLE#", "IDLE", {"POWERING_UP"}),
        ("DOWN*+DRAIN", "DOWN", {"NOT_RESPONDING", "DRAIN"}),
        ("IDLE+CLOUD+POWERED_DOWN", "IDLE", {"CLOUD", "POWERED_DOWN"}), ("IDLE+POWER", "IDLE", {"POWERED_DOWN"}),
        ("DRAINED", "IDLE", {"DRAIN"}), ("MIXED+PLANNED", "MIXED", {"PLANNED"}), ("MIXED-", "MIXED", {"PLANNED"}),
        ("UNKNOWN+DRAIN+INVALID_REG", "UNKNOWN", {"DRAIN", "INVALID_REG"}), ("", "UNKNOWN", set()),
        ("IDLE@", "IDLE", {"REBOOT_REQUESTED"}), ("IDLE+MAINT", "IDLE", {"MAINTENANCE"}),
        ("NEWWORD", "UNKNOWN", {"NEWWORD"}),
    ],
)  # fmt: skip
def test_states_of_nodes(text: str, base: str, flags: set[str]) -> None:
    assert scontrol.node_state(text) == NodeState(base, frozenset(flags))


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:8", {"": 8}), ("gpu:a100:8(S:0-1)", {"a100": 8}),
        ("gpu:a100:2(IDX:0-1),gpu:v100:0(IDX:N/A)", {"a100": 2, "v100": 0}),
        ("gres:gpu:a100:2", {"a100": 2}), ("gres/gpu:2", {"": 2}), ("gres/gpu:a100:2", {"a100": 2}), ("gpu", {"": 1}),
        ("cpu=4,mem=1000M,gres/gpu=3,gres/gpu:a100=2", {"": 1, "a100": 2}), ("gres/gpu:a100=2,gres/gpu=2", {"a100": 2}),
        ("(null)", {}), ("N/A", {}), ("", {}), ("craynetwork:2", {}), ("gres:gpu:a100", {"a100": 1}),
    ],
)  # fmt: skip
def test_gpus(text: str, gpus: dict[str, int]) -> None:
    assert texts.gpus(text) == gpus


@given(st.text(alphabet="gpu:a19=,()[]-*+|\n NAu/", max_size=60))
def test_nothing_that_slurm_could_print_raises(text: str) -> None:
    texts.gpus(text), texts.nodes(text), texts.seconds(text), texts.moment(text), texts.whole(text)
    (
        scontrol.nodes(f"NodeName=g1 {text}"),
        scontrol.partitions(f"PartitionName=gpu {text}"),
        scontrol.config(text),
    )
    scontrol.node_state(text), sacct.ended(text), squeue.jobs(f"{MARK}{text}", MARK), reasons.why(text)


def of_cluster(
    jobs: list[Job], nodes: list[Node] | None = None, is_ours: tuple[str, ...] = (), **given: Any
) -> ClusterFacts:
    rules = SlurmSettings("stars", **given)
    there = Partition("gpu", True, "UP", ("g1",))
    return facts.of_cluster(rules, {}, there, nodes or [node()], jobs, lambda job: job.user in is_ours)


def node(**given: Any) -> Node:
    usual = {"name": "g1", "state": NodeState("MIXED"), "cpus": 64, "gpus": {"": 4}, "partitions": ("gpu",)}
    return Node(**{**usual, **given})


def job(number: int, **given: Any) -> Job:
    usual: dict[str, Any] = {
        "state": "RUNNING", "user": "bob", "nodes": 1, "cpus": 1, "gres": "", "partition": "gpu", "nodelist": "g1",
    }  # fmt: skip
    none = dict.fromkeys(("array_tasks", "start", "reason", "comment"), "")
    return Job(**{"id": str(number), "array_id": str(number), **none, **usual, **given})


@pytest.mark.parametrize(
    ("jobs", "about", "given", "held"),
    [
        # ended jobs hold nothing, those that are being cleaned up do
        ([job(1, state="COMPLETED", gres="gpu:4"), job(2, state="COMPLETING", gres="gpu:1")], {}, {}, {"2": 1}),
        # what no list says is that of others, whatever runs of ours without slots are there
        ([job(1, user="me"), job(2)], {"gpus_used": {"": 4}}, {}, {"2": 4}),
        ([job(1, user="me", gres="gpu:1"), job(2)], {"gpus_used": {"": 3}}, {}, {"2": 2}),
        # without a CPU no GPU is of use
        ([job(1, cpus=64)], {"cpus_used": 64}, {}, {"1": 4}),
        ([job(1, cpus=8), job(2, user="me", cpus=8, gres="gpu:1")], {"cpus_used": 64}, {}, {"1": 3}),
        ([job(1, user="me", cpus=64)], {"cpus_used": 64}, {}, {}),
        # GPUs that are no slots are used first
        ([job(1, gres="gpu:3")], {}, {"slots_per_node": 2}, {"1": 1}),
        ([job(1, gres="gpu:2")], {}, {"slots_per_node": 2}, {}),
    ],
)  # fmt: skip
def test_which_slots_jobs_of_others_hold(
    jobs: list[Job], about: dict[str, Any], given: dict[str, Any], held: dict[str, int]
) -> None:
    [found] = of_cluster(jobs, [node(**about)], ("me",), **given).nodes
    assert {each.job: each.slots for each in found.others} == held


def test_slots_are_never_more_than_gpus() -> None:
    nodes = [
        node(),
        node(name="c1", gpus={}),
        node(name="g2", gpus={"": 2}),
        node(name="g3", gpus={"": 10**9}),
    ]
    assert [each.slots for each in of_cluster([], nodes, slots_per_node=4).nodes] == [4, 0, 2, 4]
    assert [each.slots for each in of_cluster([], nodes).nodes] == [4, 0, 2, 1024]


def test_odd_answers_are_read_within_limits() -> None:
    odd = [
        node(name="a/b"),
        node(name="x" * 200),
        node(name="g2", address="a" * 300),
        node(address="10.0.0.7"),
    ]
    found = of_cluster([], odd)
    assert [(each.name, each.address) for each in found.nodes] == [("g2", ""), ("g1", "10.0.0.7")]
    assert found.remark.startswith("2 nodes are not used, because of the name: 'a/b', 'xxx")
    assert texts.clean("a\0b\x1fc\u2028d\ne\tf") == "a b c d\ne\tf"
    assert texts.whole("9" * 400) is None and texts.seconds("9" * 5000) is None
    for many in ("g[1-10000][1-10000]", "g" + "[1]" * 5000, "g[" + "9" * 5000 + "]", "g[1-10001]"):
        assert texts.nodes(many) == []
    assert len(texts.nodes("g[1-3,07],login,c[1-2]n[1-2]")) == 9
    with pytest.raises(Refusal, match="name more than 500,000 nodes together"):
        of_cluster([job(number, nodelist="g[1-10000]") for number in range(51)])


def test_reserved_nodes_take_the_jobs_that_name_a_reservation() -> None:
    for flag in ("RESERVED", "MAINTENANCE", "DRAIN"):
        nodes = [node(state=NodeState("IDLE", frozenset({flag})))]
        assert not of_cluster([], nodes).nodes[0].takes_jobs
        [found] = of_cluster([], nodes, sbatch_args=("--reservation=course",)).nodes
        assert found.takes_jobs == (flag != "DRAIN")


def test_what_another_version_has_stored_is_read_or_left() -> None:
    document = of_cluster([job(1, gres="gpu:1")]).document
    newer = {**document, "more": 1, "nodes": [{**document["nodes"][0], "more": 1}]}
    assert ClusterFacts.of(newer) == ClusterFacts.of(document) == of_cluster([job(1, gres="gpu:1")])
    for lacking in ("partition", "nodes", "others"):
        assert ClusterFacts.of({name: value for name, value in document.items() if name != lacking}) is None
    assert SlurmSettings.of({"login": "stars", "more": 1}) == SlurmSettings("stars")


def test_old_versions_are_refused() -> None:
    with pytest.raises(Refusal, match=r"has Slurm 20.02.7. Use one with Slurm 20.11 or later"):
        facts.refuse_old({"SLURM_VERSION": "20.02.7"})
    facts.refuse_old({"SLURM_VERSION": "20.11.0"}), facts.refuse_old({})


@pytest.mark.parametrize(
    "words",
    [
        ["--constraint=a100&ib", "--mem=0"], ["-C", "ib", "-xg7"], ["--exclusive"], ["--exclusive=user"], ["--nice=5"],
        ["--reservation=course"], [],
    ],
)  # fmt: skip
def test_arguments_that_sbatch_may_get(words: list[str]) -> None:
    assert arguments.fault(words) is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-vphid"], "by their whole names"), (["-HN4"], "by their whole names"), (["-Qpother"], "whole names"),
        (["-V"], "by their whole names"), (["-h"], "by their whole names"), (["--help"], "allowed: --acctg-freq"),
        (["--version"], "allowed: --acctg-freq"), (["--ar=0-3"], "sets --array itself"), (["--constraint"], "=VALUE"),
        (["--constraint", "--array=1"], "=VALUE"), (["--constraint="], "with a value"), (["-C"], "without its value"),
        (["-C", "--array=1"], "without its value"), (["-N4"], "set slots instead"), (["-p", "x"], "pool's partition"),
        (["--contiguous=1"], "without a value"), (["--con=ib"], "allowed: --acctg"), (["a.sh"], "by their whole names"),
        (["--", "a.sh"], "allowed: --acctg"), (["--mem=1\n#"], "whole names"), (["--exclusive"] * 65, "at most 64"),
        (["--gres=gpu:2"], "the pool's gpu_type"), (["--uid=0"], "sets --uid itself"), ("--mem=0", "whole names"),
    ],
)  # fmt: skip
def test_arguments_that_sbatch_does_not_get(words: Any, sentence: str) -> None:
    found = arguments.fault(words)
    assert found and sentence in found
    assert JobSettings.of({"sbatch_args": words}) == JobSettings()


def test_how_jobs_ended() -> None:
    text = (
        "12|7.a.1|ml|CANCELLED by 1000|0:15\n13|8.b.2|ml|OUT_OF_MEMORY|0:125\n14|9.c.1|ml|FAILED|7:0\n"
        "15|9.d.1|ml|NODE_FAIL|1:0\nbroken\n16|a|b|ml|FAILED|0:0\n"
    )
    found = [(one.id, one.name, ends.end_of(one.state), one.exit_code) for one in sacct.ended(text)]
    assert [(id_, name, end.reason, code) for id_, name, end, code in found] == [
        ("12", "7.a.1", "killed_by_user", 143), ("13", "8.b.2", "rank_failed", 253), ("14", "9.c.1", "rank_failed", 7),
        ("15", "9.d.1", "host_lost", 1),
    ]  # fmt: skip
    assert found[0][2].sentence == "The job was canceled in Slurm by the account with uid 1000."
    assert ends.end_of("CANCELLED by 0", {"CANCELLED": "preempted"}).reason == "preempted"
    assert [ends.says_how(state) for state in ("", "RUNNING", "REQUEUED", "CANCELLED by 0", "NEW_STATE")] == [
        False, False, True, True, True,
    ]  # fmt: skip


def test_each_reason_has_sentences_for_people() -> None:
    for code, (sentence, to_do) in reasons.SENTENCES.items():
        assert sentence.endswith(".") and (not to_do or to_do.endswith(".")), code
    assert reasons.why("ReqNodeNotAvail, UnavailableNodes:g[1-3]").sentence.endswith("reserved: g[1-3].")
    assert reasons.why("(Resources)").code == "Resources"
    down = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
    assert reasons.why(down).code == "NodesDown"


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("QOSMaxJobsPerUserLimit", "Its QOS does not let one user have more jobs at once."),
        ("QOSMaxGRESPerUser", "Its QOS does not let one user have more GPUs at once."),
        ("AssocGrpGRES", "Its Slurm account has as many GPUs in use as it may."),
        ("AssocGrpCpuLimit", "Its Slurm account has as many CPUs in use as it may."),
        ("AssocGrpCPUMinutesLimit", "Its Slurm account has used up its time on CPUs."),
        ("AssocMaxWallDurationPerJobLimit", "Its Slurm account limits the time of one job, and it asks for more."),
        ("QOSGrpNodeLimit", "Its QOS has as many nodes in use as it may."),
        ("QOSMinGRES", "Its QOS wants jobs to ask for more GPUs."),
        ("SomethingNew", "Slurm says SomethingNew."),
    ],
)  # fmt: skip
def test_limits_and_unknown_reasons(code: str, sentence: str) -> None:
    assert reasons.why(code).sentence == sentence


def test_each_end_is_a_reason_of_ours() -> None:
    known = set(Reason.values)
    assert {end.reason for end in ends.ENDS.values()} | set(ends.ALLOWED) <= known
    assert not ends.LIVE & (set(ends.ENDS) - {"REQUEUED"})
    assert ends.end_of("CANCELLED").sentence == "The job was canceled in Slurm."
    assert ends.end_of("CANCELLED", {"CANCELLED": "preempted"}).reason == "preempted"
    assert re.search("ended as NEW_STATE", ends.end_of("NEW_STATE").sentence)


def test_the_page_has_each_reason_and_end_and_its_settings_are_allowed() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/slurm_pool.md").read_text()
    for code, (sentence, to_do) in reasons.SENTENCES.items():
        assert f"| `{code}` | {sentence} | {to_do} |" in page
    for state, end in ends.ENDS.items():
        again = "yes" if end.reason in NOT_THE_CODES_FAULT else "no"
        again = "counts as a restart" if end.reason == "rank_failed" else again
        assert f"| `{state}` | `{end.reason}`: {end.sentence} | {again} |" in page
    for text in re.findall(r"--slurm ([^\s`]+)", page):
        assert (
            settings.fault({"login": "stars1", **slurm_settings.merged({}, slurm_settings.read(text))})
            is None
        )
    listed = page.partition("| setting |")[2].partition("\n\n")[0]
    assert {each.name for each in fields(SlurmSettings)} <= set(re.findall(r"`(\w+)`", listed))


def test_settings_are_written_as_they_are_read() -> None:
    text = (
        "login=ada@stars1:22,partition=gpu,slots_per_node=4,folder_is_shared=no,"
        "sbatch_args=--exclude=g1,g2 '--comment=a b',ends=CANCELLED:preempted TIMEOUT:rank_failed"
    )
    read = slurm_settings.read(text)
    assert read["sbatch_args"] == ["--exclude=g1,g2", "--comment=a b"] and read["slots_per_node"] == 4
    assert read["folder_is_shared"] is False
    assert read["ends"] == {"CANCELLED": "preempted", "TIMEOUT": "rank_failed"}
    assert slurm_settings.read(slurm_settings.written(read)) == read
    assert slurm_settings.merged(read, slurm_settings.read("ends=,max_fed=3"))["max_fed"] == 3
    with pytest.raises(ValueError, match="such as login=stars,partition=gpu"):
        slurm_settings.read("login1")
    assert settings.fault({"login": "stars1", **slurm_settings.read("max_fed=many")}) is not None
