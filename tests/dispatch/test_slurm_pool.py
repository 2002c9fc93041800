"""A Slurm pool is admitted over a real sshd, whatever the login shell prints; what is wrong is said in a sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import LazySettings
from django.utils import timezone

from accounts.models import User
from accounts.refusals import FieldRefusals, Refusal
from dispatch.passes import survey
from dispatch.ssh import remote, slurm_login
from dispatch.watching import admission, probing, slurm_facts
from events import presence
from hosts import admitting, chosen, observe, pool_edits, registry, slurm_nodes
from hosts.models import Host, ResourcePool, Slot, SlurmFacts
from hosts.pools import default_pool
from hosts.registry import NewHost
from hosts.slurm.facts import ClusterFacts, NodeFacts
from jobs import accepting
from jobs.fed_jobs import FedJob
from jobs.models import Member
from tests.dispatch.sshd import Sshd
from tests.rig import slurm_words
from tests.rig.rows import make_gang
from tests.rig.web import Web
from tests.rig.world import submit_experiment, trial_of

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("redis_server"),
]

WORLD: dict[str, Any] = {
    "jobs": [
        {"id": 1, "state": "RUNNING", "user": "bob", "nodes": 2, "gpus": "a100:3", "nodelist": "g[1-2]"},
        {"id": 2, "state": "RUNNING", "user": "cyd", "nodelist": "g2"},  # asked for GPUs by job
        {"id": 3, "state": "PENDING", "user": "bob", "array": "0-9", "reason": "Priority"},
        {"id": 4, "state": "RUNNING", "user": "dan", "nodelist": "c1", "partition": "cpu"},
        {"id": 5, "state": "COMPLETED", "user": "eve", "gpus": "a100:4", "nodelist": "g[1-3]"},
    ],
    "partitions": [{"name": "gpu", "nodes": "g[1-3]", "default": "YES", "limit": "1-00:00:00"},
                   {"name": "cpu", "nodes": "c1"}],
    "nodes": [
        {"name": "g1", "type": "a100", "gpus": 4, "gpus_used": 3, "state": "MIXED"},
        {"name": "g2", "type": "a100", "gpus": 4, "gpus_used": 4, "state": "ALLOCATED"},
        {"name": "g3", "type": "a100", "gpus": 4, "state": "IDLE+DRAIN", "reason": "bad riser"},
        {"name": "c1", "partitions": "cpu"},
    ],
    "accounts": ["physics"],
}  # fmt: skip


@pytest.fixture
def cluster(start_sshd: Callable[..., Sshd], tmp_path: Path) -> Sshd:
    """A login node that greets on both streams, and speaks Slurm 20.11."""
    slurm_words.install(tmp_path / "slurm", "20.11", WORLD)
    shell = tmp_path / "login_shell"
    shell.write_text(
        "#!/bin/sh\necho 'Welcome to stars!'; echo 'module: command not found' >&2\n"
        f'PATH={tmp_path}/slurm:/usr/bin:/bin exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n'
    )
    shell.chmod(0o755)
    return start_sshd(f"ForceCommand {shell}")


def make(sshd: Sshd, tmp_path: Path, **given: Any) -> tuple[ResourcePool, Host]:
    way = NewHost(
        "",
        address="127.0.0.1",
        port=sshd.port,
        login_user=sshd.user,
        host_key=sshd.host_key,
        python=sys.executable,
    )
    rules = {"slurm": {"login": "stars", "folder": str(tmp_path / "shared"), **given}}
    pool = pool_edits.create("stars", rules, actor="user:ada", route=way)
    return pool, slurm_nodes.login_of(pool)


def test_a_cluster_is_admitted_and_its_nodes_are_hosts(
    web: Web, cluster: Sshd, tmp_path: Path, settings: LazySettings
) -> None:
    settings.LISTEN_ADDRESS, settings.LISTEN_PORT = "127.0.0.1", urlsplit(web.url).port
    pool, login = make(cluster, tmp_path)
    admission.admit(login.pk)
    login.refresh_from_db()
    assert (login.admission, login.state_reason, login.name) == ("ready", "", "stars-login")
    assert not login.slots.exists() and (tmp_path / "shared").is_dir()
    nodes = slurm_nodes.of_pool(pool)
    assert [host.name for host in nodes.values()] == ["g1@stars", "g2@stars", "g3@stars"]
    assert {host.state for host in nodes.values()} == {"ready", "draining"}
    assert (
        nodes["g3"].drain_reason
        == "Slurm starts nothing there: IDLE+DRAIN (bad riser [root@2026-01-01T00:00:00])."
    )
    outside = {
        name: sorted(slot.outside.get("user", "") for slot in host.slots.all())
        for name, host in nodes.items()
    }
    assert outside == {"g1": ["", "bob", "bob", "bob"], "g2": ["bob", "bob", "bob", "cyd"], "g3": [""] * 4}
    kept = SlurmFacts.objects.get(pool=pool)
    facts = ClusterFacts.of(kept.document)
    assert facts is not None
    assert (facts.version, facts.partition, facts.max_seconds, kept.error) == ("20.11.9", "gpu", 86400, "")
    assert [(user.user, user.running, user.waiting, user.slots) for user in facts.others] == [
        ("bob", 1, 10, 6),
        ("cyd", 1, 0, 1),
    ]
    snapshot = survey.take(pool, timezone.now())
    assert [host.name for host in snapshot.hosts] == ["g1@stars", "g2@stars", "g3@stars"]
    with pytest.raises(remote.RemoteError, match="contacts its login node alone"):
        remote.verb(nodes["g1"], "status", {})

    # what has changed there is brought in line, and what a person has drained stays so
    registry.drain(nodes["g1"].pk, actor="user:ada")
    world = {
        **WORLD,
        "jobs": [],
        "nodes": [{**row, "gpus_used": 0, "state": "IDLE"} for row in WORLD["nodes"][:2]],
    }
    slurm_words.install(tmp_path / "slurm", "25.05", world)
    assert slurm_nodes.claim_due(60.0) == [pool.pk] and slurm_nodes.claim_due(60.0) == []
    slurm_facts.read_pool(pool.pk)
    nodes = slurm_nodes.of_pool(pool)
    assert {name: host.state for name, host in nodes.items()} == {"g1": "draining", "g2": "ready"}
    assert not Slot.objects.filter(host__pool=pool).exclude(outside={}).exists()

    # a cluster that says nothing changes nothing that was known
    slurm_words.install(tmp_path / "slurm", "25.05", {**world, "partitions": []})
    slurm_facts.read_pool(pool.pk)
    assert (
        SlurmFacts.objects.get(pool=pool).error == "The cluster has no default partition. Give one of: none."
    )
    assert len(slurm_nodes.of_pool(pool)) == 2

    registry.declare_lost(nodes["g2"].pk, actor="user:ada")
    slurm_words.install(tmp_path / "slurm", "23.11", world)
    slurm_facts.read_pool(pool.pk)
    assert slurm_nodes.of_pool(pool)["g2"].admission == "lost"
    registry.examine(nodes["g2"].pk, actor="user:ada")
    assert admitting.forgotten() == [] and slurm_nodes.claim_due(60.0) == [pool.pk]
    slurm_facts.read_pool(pool.pk)
    assert slurm_nodes.of_pool(pool)["g2"].admission == "ready"

    with pytest.raises(Refusal, match="uses the Python of stars-login"):
        registry.choose_interpreter(nodes["g1"].pk, python="/usr/bin/python3", actor="user:ada")
    with pytest.raises(Refusal, match="Drain or disable it instead"):
        registry.remove(nodes["g1"].pk, actor="user:ada")
    with pytest.raises(Refusal, match="login node of pool stars"):
        registry.remove(login.pk, actor="user:ada")
    with pytest.raises(Refusal, match="nodes that Slurm lists"):
        registry.add(NewHost("gpu1"), pool, actor="user:ada")
    pool_edits.remove("stars", actor="user:ada")
    assert not registry.present().exists() and not ResourcePool.objects.filter(name="stars").exists()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"partition": "tpu"}, "The cluster has no partition 'tpu'; it has: cpu, gpu."),
        (
            {"account": "chem"},
            "Slurm would not take a job from .* 'gpu': .*Invalid account or account/partition",
        ),
        ({"partition": "cpu"}, "No node of partition 'cpu' has GPUs. For slots of CPUs give slot_type=cpu"),
        ({"gpu_type": "h100"}, "No node of partition 'gpu' has GPUs of type 'h100'"),
        ({"folder": "/proc/nothing"}, "The folder /proc/nothing cannot be written to on stars-login: mkdir"),
    ],
)
def test_what_jobs_would_lack_is_a_sentence(
    cluster: Sshd, tmp_path: Path, given: dict[str, Any], sentence: str
) -> None:
    _, login = make(cluster, tmp_path, **given)
    with pytest.raises(Refusal, match=sentence):
        slurm_facts.admit(login)
    assert not Host.objects.filter(transport=Host.Transport.SLURM).exists()


def test_slots_of_cpus(cluster: Sshd, tmp_path: Path) -> None:
    pool, login = make(
        cluster, tmp_path, partition="cpu", slot_type="cpu", slots_per_node=8, account="physics"
    )
    task, later = trial_of(submit_experiment()).task_id, timezone.now() + timedelta(hours=1)
    FedJob.objects.create(
        pool=pool, task_id=task, attempt=f"{task}.1", nodes=1, refused=True, send_after=later
    )
    slurm_facts.admit(login)
    assert FedJob.objects.get().send_after is None, "what was refused is tried again"
    [node] = slurm_nodes.of_pool(pool).values()
    slots = list(node.slots.order_by("index"))
    assert [(slot.kind, slot.outside.get("user", "")) for slot in slots] == [("cpu", "")] * 7 + [
        ("cpu", "dan")
    ]


def test_a_login_node_without_slurm_or_with_a_shell_that_ends(
    start_sshd: Callable[..., Sshd], tmp_path: Path
) -> None:
    sshd = start_sshd("ForceCommand echo This account is closed.")
    _, login = make(sshd, tmp_path)
    with pytest.raises(
        remote.RemoteError, match=r"before the command began \(exit code 0\): This account is"
    ):
        slurm_login.ask(login, ["squeue"])
    other = start_sshd()
    Host.objects.filter(pk=login.pk).update(port=other.port, host_key=other.host_key)
    login.refresh_from_db()
    with pytest.raises(remote.RemoteError, match="has no nosuchprogram: it is neither in PATH"):
        slurm_login.ask(login, ["nosuchprogram"])
    hostile = 'it\'s "$HOME" `id` !x \\n;|&'
    assert slurm_login.ask(login, ["printf", "%s", hostile])[0] == hostile
    assert slurm_login.ask(login, ["cat"], b"script\n")[0] == "script\n"


def test_nodes_are_silent_with_their_login_node(tmp_path: Path) -> None:
    pool = pool_edits.create("stars", {"slurm": {"login": "10.0.0.9"}}, actor="user:ada")
    login = slurm_nodes.login_of(pool)
    assert (login.address, login.port, login.name) == ("10.0.0.9", 22, "stars-login")
    slurm_nodes.took_in(pool, login, told("g1", "g2"))
    node = slurm_nodes.of_pool(pool)["g1"]
    long_ago = timezone.now() - timedelta(hours=1)
    Host.objects.update(last_seen_at=long_ago)
    Host.objects.filter(pk=login.pk).update(contact="reachable")
    now = timezone.now()
    whole = presence.Whole(now=now, since=long_ago, era=1)
    assert observe.note_silence(whole) == 1
    node.refresh_from_db()
    assert (node.contact, node.contact_error) == ("silent", "The login node stars-login does not answer.")

    # they answer again with the next reading, and not with a login node of which nobody heard since
    Host.objects.filter(pk=login.pk).update(contact="reachable", last_seen_at=timezone.now())
    slurm_nodes.took_in(pool, login, told("g1", "g2"))
    assert observe.note_silence(whole) == 0 and slurm_nodes.of_pool(pool)["g1"].contact == "reachable"
    SlurmFacts.objects.update(read_at=long_ago, error="squeue on stars-login failed.")
    observe.note_silence(whole)
    node.refresh_from_db()
    assert node.contact == "silent" and node.contact_error.startswith("The cluster could not be read for")
    assert node.contact_error.endswith("squeue on stars-login failed.")

    # nor of another cluster, whatever is still being read of this one
    slurm_nodes.took_in(pool, login, told("g1", "g2"))
    pool_edits.edit("stars", {"slurm": {"login": "10.0.0.8"}}, actor="user:ada")
    assert {host.contact for host in slurm_nodes.of_pool(pool).values()} == {"silent"}
    slurm_nodes.took_in(pool, login, told("g1", "g2"))
    assert {host.contact for host in slurm_nodes.of_pool(pool).values()} == {"silent"}


def told(*names: str, why: str = "") -> ClusterFacts:
    nodes = [
        NodeFacts(name, "DOWN" if why else "IDLE", not why, name, 64, 1000, {"": 4}, 4, why) for name in names
    ]
    return ClusterFacts("22.05.8", "stars", False, "gpu", "UP", None, 30, nodes, [])


def test_a_node_with_a_run_that_leaves_the_partition_drains() -> None:
    stars = pool_edits.create("stars", {"slurm": {"login": "10.0.0.9"}}, actor="user:ada")
    login = slurm_nodes.login_of(stars)
    slurm_nodes.took_in(stars, login, told("g1", "g2", "g3"))
    node = slurm_nodes.of_pool(stars)["g1"]
    [member] = make_gang()
    Member.objects.filter(pk=member.pk).update(host=node)
    Host.objects.filter(pk=node.pk).update(last_seen_at=None)
    slurm_nodes.took_in(stars, login, told("g2", "g3"))
    node.refresh_from_db()
    assert (node.state, node.last_seen_at) == ("draining", None)
    assert node.drain_reason.startswith("Slurm no longer lists it in the partition.")
    with pytest.raises(FieldRefusals, match="login cannot be changed while runs are on g1@stars"):
        pool_edits.edit("stars", {"slurm": {"login": "10.0.0.8"}}, actor="user:ada")
    with pytest.raises(FieldRefusals, match="folder cannot be changed while runs"):
        pool_edits.edit("stars", {"slurm": {"login": "10.0.0.9", "folder": "/x"}}, actor="user:ada")
    slurm_nodes.took_in(stars, login, told("g1", "g2", "g3"))
    assert slurm_nodes.of_pool(stars)["g1"].state == "ready"
    Member.objects.filter(pk=member.pk).update(ended_at=timezone.now())
    slurm_nodes.took_in(stars, login, told("g2", "g3"))
    assert sorted(slurm_nodes.of_pool(stars)) == ["g2", "g3"]

    # what people said stays, whatever Slurm lists
    other = slurm_nodes.of_pool(stars)["g2"]
    registry.disable(other.pk, actor="user:ada")
    slurm_nodes.took_in(stars, login, told("g2", "g3", why="bad"))
    other.refresh_from_db()
    assert other.drain_reason.startswith("Disabled by ada")
    registry.declare_lost(other.pk, actor="user:ada")
    slurm_nodes.took_in(stars, login, told("g3"))
    slurm_nodes.took_in(stars, login, told("g2", "g3"))
    other.refresh_from_db()
    assert other.admission == "lost"
    registry.examine(other.pk, actor="user:ada")
    slurm_nodes.took_in(stars, login, told("g2", "g3"))
    other.refresh_from_db()
    assert (other.admission, other.enabled) == ("ready", False)
    with pytest.raises(Refusal, match="Edit slots_per_node of pool stars instead"):
        chosen.settle(login.pk, chosen.Choice(stars, login.python, count=2), actor="user:ada")


def test_a_first_reading_costs_few_queries(django_assert_max_num_queries: Any) -> None:
    pool = pool_edits.create("stars", {"slurm": {"login": "10.0.0.9"}}, actor="user:ada")
    login = slurm_nodes.login_of(pool)
    names = [f"g{number}" for number in range(300)]
    with django_assert_max_num_queries(60):
        slurm_nodes.took_in(pool, login, told(*names))
    assert Slot.objects.filter(host__pool=pool).count() == 1200
    with django_assert_max_num_queries(20):
        slurm_nodes.took_in(pool, login, told(*names))


def test_which_edits_admit_the_login_node_again_and_which_pools_are_read() -> None:
    pool = pool_edits.create("stars", {"slurm": {"login": "10.0.0.9"}}, actor="user:ada")
    login = slurm_nodes.login_of(pool)
    assert slurm_nodes.claim_due(60.0) == []  # it is being admitted
    slurm_nodes.took_in(pool, login, told("g1"))
    Host.objects.filter(pk=login.pk).update(admission="ready")
    assert slurm_nodes.claim_due(60.0) == [pool.pk]
    pool_edits.edit("stars", {"slurm": {"login": "10.0.0.9", "max_fed": 3}}, actor="user:ada")
    assert slurm_nodes.login_of(pool).admission == "ready" and slurm_nodes.claim_due(60.0) == [pool.pk]
    slurm_nodes.read_over(pool.pk, timezone.now() - timedelta(seconds=1))
    Host.objects.filter(pk=login.pk).update(admission="failed")
    assert probing.anything_due() and slurm_nodes.claim_due(60.0) == [pool.pk]
    pool_edits.edit("stars", {"slurm": {"login": "10.0.0.9", "partition": "gpu"}}, actor="user:ada")
    assert slurm_nodes.login_of(pool).admission == "admitting"


def test_a_section_that_is_wrong_is_refused_by_slurm_pools_alone() -> None:
    pool = default_pool()
    owner = User.objects.create(username="ada", role=User.Role.ADMIN)
    stars = pool_edits.create("stars", {"slurm": {"login": "10.0.0.9"}}, actor="user:ada")
    wrong = {"sbatch_args": ["--time=1:00:00"]}
    with pytest.raises(Refusal, match=r"slurm: sbatch_args: .* set resources.max_time instead"):
        accepting.settle({"resource_pool": stars.name}, 0, owner=owner, role="admin", slurm=wrong)
    assert accepting.settle({"resource_pool": pool.name}, 0, owner=owner, role="admin", slurm=wrong) == pool
    with pytest.raises(Refusal, match="names host stars-login, which does not exist"):
        asked = {"resource_pool": stars.name, "hosts": ["stars-login"]}
        accepting.settle(asked, 0, owner=owner, role="admin")


def test_settings_that_are_wrong_and_pools_of_another_kind() -> None:
    for value, sentence in [
        ({"partition": "gpu"}, "login is required"),
        ({"login": "a b"}, "a name of the server's SSH config or an address"),
        ({"login": "stars", "cluster": "x"}, "unknown setting cluster"),
        ({"login": "stars", "sbatch_args": ["--array=1-3"]}, "Trainmaster sets --array itself"),
        ({"login": "stars", "sbatch_args": ["-N4"]}, "itself; set slots instead"),
        ({"login": "stars", "sbatch_args": ["--part=x"]}, "set the pool's partition instead"),
        ({"login": "stars", "sbatch_args": ["constraint"]}, "options of sbatch"),
        ({"login": "stars", "max_fed": 0}, "max_fed: found 0; allowed: a whole number from 1 to 1000"),
        ({"login": "stars", "tunnel": "127.0.0.1"}, "tunnel: found '127.0.0.1'; allowed: a name or address"),
        ({"login": "stars", "tunnel": "http://stars"}, "tunnel: found 'http://stars'"),
        ({"login": "stars", "folder_is_shared": False, "folder": "~/x"}, "folder is required with folder_is"),
        ({"login": "stars", "folder": "shared"}, "an absolute path on the cluster"),
        ({"login": "stars", "ends": {"CANCELLED": "fine"}}, "CANCELLED is 'fine'"),
        ({"login": "stars", "slot_type": "cpu", "gpu_type": "a100"}, "slots of this pool are CPUs"),
    ]:
        with pytest.raises(FieldRefusals, match=sentence):
            pool_edits.create("stars", {"slurm": value}, actor="user:ada")
    good = {"login": "ada@login.example:2222", "sbatch_args": ["--constraint=ib", "--mem=0", "-xg7"]}
    pool_edits.create("stars", {"slurm": good}, actor="user:ada")
    pool_edits.create("ours", {}, actor="user:ada")
    with pytest.raises(FieldRefusals, match="pool of hosts reached by SSH"):
        pool_edits.edit("ours", {"slurm": good}, actor="user:ada")
    with pytest.raises(FieldRefusals, match="its login is required"):
        pool_edits.edit("stars", {"slurm": {}}, actor="user:ada")
    pool_edits.edit("stars", {"slurm": {**good, "login": "login2"}}, actor="user:ada")
    login = slurm_nodes.login_of(ResourcePool.objects.get(name="stars"))
    assert (login.address, login.port, login.login_user) == (
        "",
        0,
        "",
    )  # the server's SSH config is asked for it
