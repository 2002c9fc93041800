"""What a member is told to run: in its image on all hosts of its gang, or on none, which its log then says."""

from typing import Any

import pytest

from dispatch.passes import pool_pass
from dispatch.runs import kinds, spec
from experiments.models import Experiment
from hosts.models import Host
from jobs.models import Member
from tests.rig.world import make_host, members_of, submit_experiment
from trainmaster.protocol import Spec, check_spec

pytestmark = pytest.mark.django_db


def runtime(problem: str | None = None) -> dict[str, Any]:
    return {
        "runtimes": [{"name": "docker", "path": "docker", "version": "28", "problem": problem}],
        "cdi": False,
    }


def specs(experiment: Experiment) -> list[Spec]:
    rows = Member.objects.select_related("host", "allocation__task__job", "allocation__pool")
    members = [rows.get(pk=member.pk) for member in members_of(experiment)]
    return [check_spec(spec.build(one, members, kinds.describe(one.allocation, "cpu"))) for one in members]


def test_a_gang_is_in_its_image_where_all_its_hosts_can_and_else_says_which_cannot(settings: Any) -> None:
    for name in ("gpu0", "gpu1"):
        make_host(name, 1)
    experiment = submit_experiment(slots=2)
    experiment.config["environment"]["image"] = dict.fromkeys(("cpu", "cuda", "rocm"), "team/train:1")
    experiment.save()
    pool_pass.run(experiment.job.pool_id)
    Host.objects.update(facts={"containers": runtime()})
    for built in specs(experiment):
        assert built["container"] and built["container"]["image"] == "team/train:1" and built["remarks"] == []
    Host.objects.filter(name="gpu1").update(facts={"containers": runtime("no daemon")})
    for built in specs(experiment):
        assert built["container"] is None and built["remarks"]
        assert (
            "without the image team/train:1: no usable podman, docker or apptainer on gpu1 "
            in built["remarks"][0]
        )
    experiment.config["bind_mounts"] = [
        mount := {"host_path": "/a", "container_path": "/b", "read_only": True}
    ]
    experiment.save()
    assert [built["mounts"] for built in specs(experiment)] == [[mount], [mount]], "it sees them without, too"
    Host.objects.update(facts={"containers": runtime()})
    assert [built["mounts"] for built in specs(experiment)] == [None, None]
    settings.RUN_IMAGES = False
    assert ["RUN_IMAGES" in (built["remarks"] or [""])[0] for built in specs(experiment)] == [True, True]


def test_the_log_of_a_legacy_entrypoint_begins_with_the_launcher_that_it_takes() -> None:
    make_host("gpu0", 1)
    experiment = submit_experiment()
    experiment.config["entrypoint"] = "model_def:Classifier"
    experiment.save()
    pool_pass.run(experiment.job.pool_id)
    (built,) = specs(experiment)
    assert built["remarks"] == [
        "entrypoint model_def:Classifier, an older form, was read as "
        "`python3 -m determined.launch.torch_distributed --trial model_def:Classifier`."
    ]
    assert built["entrypoint"][-2:] == ["--trial", "model_def:Classifier"]
    experiment.config["environment"]["sdk"] = "installed"
    experiment.save()
    assert specs(experiment)[0]["remarks"] == [], "the host's own package reads it by itself"
