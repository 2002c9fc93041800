"""Checkpoints in S3 and in folders on real hosts: stored, restored elsewhere, deleted; and storage that is wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rig.hosts import HostRig
from tests.rig.s3 import KEYS, Bucket, s3_server
from tests.rig.stack import Json, Stack, config, running_stack

pytestmark = [pytest.mark.hosts, pytest.mark.compat]

LIMIT_SECONDS = 180.0
LARGE_BYTES = 40 * 1024**2
#: the first attempt stores and breaks; the second restores what it stored, and stores once more
CODE = f"""
import hashlib, os, pathlib, sys
import determined as det

LARGE = hashlib.sha256(b"seed").digest() * ({LARGE_BYTES} // 32)
info = det.get_cluster_info()
told = pathlib.Path(os.environ["TRAINMASTER_RUN_DIR"], "spec.json").read_text() + str(os.environ)
assert "-".join({KEYS["secret_key"].split("-")!r}) not in told
with det.core.init() as context:
    if info.latest_checkpoint is None:
        with context.checkpoint.store_path({{"steps_completed": 1}}) as (path, uuid):
            (path / "deep").mkdir()
            (path / "deep" / "large").write_bytes(LARGE)
            (path / "small").write_text("s")
        sys.exit(7)
    with context.checkpoint.restore_path(info.latest_checkpoint) as path:
        assert (path / "deep" / "large").read_bytes() == LARGE and (path / "small").read_text() == "s"
    print("restored", context.checkpoint.get_metadata(info.latest_checkpoint), flush=True)
    with context.checkpoint.store_path({{"steps_completed": 2}}) as (path, uuid):
        (path / "small").write_text("t")
"""


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    with running_stack(host_rig, hosts=2) as stack:
        stack.add_hosts(slots=1)
        yield stack


@pytest.fixture(scope="module")
def bucket(host_rig: HostRig) -> Iterator[Bucket]:
    with s3_server(host_rig.server_address) as found:
        yield found


def said(stack: Stack, experiment: int) -> str:
    return "\n".join(record["log"] for record in stack.records(stack.trial(experiment)["id"]))


def test_a_trial_goes_on_from_s3_for_which_its_hosts_have_no_keys(stack: Stack, bucket: Bucket) -> None:
    storage = bucket.section(**KEYS, save_trial_latest=2)
    experiment = stack.submit(
        {"train.py": CODE}, config(1, "python3 train.py", checkpoint_storage=storage, max_restarts=1)
    )
    wrong = {"type": "shared_fs", "host_path": "/mnt/nobody-has-mounted-this"}
    refused = stack.submit(
        {"train.py": CODE}, config(1, "python3 train.py", checkpoint_storage=wrong, max_restarts=0)
    )
    absent = bucket.section(bucket="absent", **KEYS)
    nowhere = stack.submit(
        {"train.py": CODE}, config(1, "python3 train.py", checkpoint_storage=absent, max_restarts=0)
    )
    assert stack.wait_end(experiment, LIMIT_SECONDS) == "STATE_COMPLETED", said(stack, experiment)
    assert "restored {'steps_completed': 1}" in said(stack, experiment)
    assert KEYS["secret_key"] not in str(stack.experiment(experiment)) + said(stack, experiment)

    def stored() -> list[Json]:
        return list(stack.get(f"/api/v1/experiments/{experiment}/checkpoints")["checkpoints"])

    # an upload may outlive the ranks
    stack.wait(
        lambda: {one["state"] for one in stored()} == {"STATE_COMPLETED"}, LIMIT_SECONDS, "the uploads"
    )
    first = next(one["uuid"] for one in stored() if one["metadata"]["steps_completed"] == 1)
    prefix = f"team/a/{first}"
    wanted = {f"{prefix}/deep/large", f"{prefix}/small", f"{prefix}/metadata.json"}
    assert wanted <= set(bucket.names())
    # storage that cannot be used: no restart is counted, and the sentence says what is wrong
    for broken, why in (
        (refused, "nobody-has-mounted-this on host"),
        (nowhere, "bucket absent cannot be used from"),
    ):
        assert stack.wait_end(broken, LIMIT_SECONDS) == "STATE_ERROR"
        log = said(stack, broken)
        assert why in log and "The entrypoint was not started" in log
        assert stack.trial(broken)["restarts"] == 0 and "restored" not in log
    stack.server.request("DELETE", f"/api/v1/experiments/{experiment}", token=stack.token)
    stack.wait(lambda: bucket.names() == [], LIMIT_SECONDS, "the deletion of what is in S3")
