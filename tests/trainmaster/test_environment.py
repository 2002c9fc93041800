"""The environment of an entrypoint."""

import json
from typing import Any

from trainmaster.environment import COLLECTIVES_REMEMBERED, build_environment, visible_devices
from trainmaster.protocol import check_spec

SPEC: dict[str, Any] = {
    "protocol": 1,
    "run_key": "7.ab.1.0",
    "allocation_id": "7.ab.1",
    "member": 0,
    "members": 2,
    "task_id": "7.ab",
    "task_type": "TRIAL",
    "job_id": "j",
    "cluster": {"id": "c", "name": "n"},
    "host": {"id": "h", "name": "gpu1"},
    "token": "secret-token",
    "user": "carol",
    "python": "/opt/py/bin/python3",
    "entrypoint": ["true"],
    "environment": {
        "MINE": "1",
        "PYTHONPATH": "/mine",
        "CUDA_VISIBLE_DEVICES": "7",
        "TRAINMASTER_RUN": "other",
    },
    "slots": [
        {"index": 1, "uuid": "GPU-b", "kind": "cuda"},
        {"index": 0, "uuid": "GPU-a", "kind": "cuda"},
    ],
    "gang": {
        "addresses": ["10.0.0.1", "10.0.0.2"],
        "slot_counts": [2, 2],
        "ports": {"c10d": 29400, "comm": 29401},
        "interface": "eth1",
        "secret": "gang-secret",
    },
    "trial": {
        "trial_id": 1,
        "experiment_id": 7,
        "trial_seed": 42,
        "hparams": {"lr": 0.1},
        "config": {"name": "x"},
        "run_id": 3,
        "steps_completed": 10,
        "latest_checkpoint": "uuid",
    },
    "user_data": {},
    "checkpoint_storage": {"type": "server"},
}
INHERITED = {
    "PATH": "/usr/bin:/opt/py/bin:/bin",
    "LANG": "C.UTF-8",
    "LC_ALL": "C",
    "https_proxy": "http://proxy",
    "CUDA_HOME": "/cuda",
    "DATABASE_URL": "secret",
    "DJANGO_SECRET_KEY": "secret",
    "SSH_AUTH_SOCK": "/tmp/agent",
    "TRAINMASTER_KEEPER": "7.ab.1.0",
    "HOME": "/root",
}


def build(**changes: Any) -> dict[str, str]:
    return build_environment(
        check_spec({**SPEC, **changes}),
        run_dir="/w/runs/7.ab.1.0",
        code_dir="/w/runs/7.ab.1.0/code",
        bundle="/w/bundle/abc",
        server_url="https://server:8080",
        certificate=("/w/runs/7.ab.1.0/server.pem", "localhost"),
        inherited=INHERITED,
        account={"HOME": "/home/alice", "USER": "alice"},
    )


def test_a_job_gets_its_account_and_what_is_harmless_of_the_host() -> None:
    environment = build()
    assert environment["HOME"] == "/home/alice" and environment["USER"] == "alice"
    for name in ("LANG", "LC_ALL", "https_proxy", "CUDA_HOME"):
        assert environment[name] == INHERITED[name]
    assert "secret" not in {environment.get("DATABASE_URL"), environment.get("DJANGO_SECRET_KEY")}
    assert not {"DATABASE_URL", "DJANGO_SECRET_KEY", "SSH_AUTH_SOCK", "TRAINMASTER_KEEPER"} & set(environment)


def test_what_identifies_the_run_cannot_be_changed_by_the_config() -> None:
    environment = build()
    assert environment["TRAINMASTER_RUN"] == "7.ab.1.0"
    assert environment["TRAINMASTER_RUN_DIR"] == "/w/runs/7.ab.1.0"
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert environment["MINE"] == "1"


def test_paths_are_led_by_python_and_bundle() -> None:
    environment = build()
    assert environment["PATH"] == "/opt/py/bin:/usr/bin:/bin"
    assert environment["PYTHONPATH"] == "/w/bundle/abc:/mine"
    assert environment["PYTHONUNBUFFERED"] == "1"
    assert build(environment={"PYTHONUNBUFFERED": ""})["PYTHONUNBUFFERED"] == ""
    assert build(python=None)["PATH"] == INHERITED["PATH"]


def test_determined_names_are_all_there() -> None:
    environment = build()
    expected = {
        "DET_MASTER": "https://server:8080",
        "DET_USE_TLS": "true",
        "DET_MASTER_CERT_FILE": "/w/runs/7.ab.1.0/server.pem",
        "DET_MASTER_CERT_NAME": "localhost",
        "DET_USER": "carol",
        "DET_USER_TOKEN": "secret-token",
        "DET_RESOURCES_TYPE": "trainmaster-run",
        "DET_CLUSTER_ID": "c",
        "DET_AGENT_ID": "gpu1",
        "DET_TASK_ID": "7.ab",
        "DET_TASK_TYPE": "TRIAL",
        "DET_ALLOCATION_ID": "7.ab.1",
        "DET_RESOURCES_ID": "7.ab.1.0",
        "DET_CONTAINER_ID": "7.ab.1.0",
        "DET_SESSION_TOKEN": "secret-token",
        "DET_EXPERIMENT_ID": "7",
        "DET_TRIAL_ID": "1",
        "DET_TRIAL_RUN_ID": "3",
        "DET_TRIAL_SEED": "42",
        "DET_STEPS_COMPLETED": "10",
        "DET_LATEST_CHECKPOINT": "uuid",
        "DET_INTER_NODE_NETWORK_INTERFACE": "eth1",
        "DET_WORKDIR": "/w/runs/7.ab.1.0/code",
        "C10D_PORT": "29400",
        "INTER_TRAIN_PROCESS_COMM_PORT_1": "29401",
        "NCCL_SOCKET_IFNAME": "eth1",
    }
    assert {name: environment.get(name) for name in expected} == expected
    assert json.loads(environment["DET_HPARAMS"]) == {"lr": 0.1}
    assert json.loads(environment["DET_EXPERIMENT_CONFIG"]) == {"name": "x"}
    assert sorted(json.loads(environment["DET_SLOT_IDS"])) == [0, 1]


def test_a_task_without_trial_and_slots_sees_no_gpu() -> None:
    environment = build(trial=None, slots=[], task_type="COMMAND")
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert "DET_TRIAL_ID" not in environment
    assert (
        visible_devices(check_spec({**SPEC, "slots": [{"index": 0, "uuid": "cpu-0", "kind": "cpu"}]})) == []
    )


def test_a_config_too_long_for_the_kernel_is_left_out_and_the_job_still_starts() -> None:
    trial = {**SPEC["trial"], "config": {"name": "x" * 200_000}}
    environment = build(trial=trial)
    assert "DET_EXPERIMENT_CONFIG" not in environment and "DET_HPARAMS" in environment


def test_the_flight_recorder_is_as_large_as_the_config_says_by_either_name() -> None:
    assert build()["TORCH_FR_BUFFER_SIZE"] == COLLECTIVES_REMEMBERED
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):
        environment = build(environment={**SPEC["environment"], name: "7"})
        said = {key: value for key, value in environment.items() if key.endswith("_BUFFER_SIZE")}
        assert said == {name: "7"}
