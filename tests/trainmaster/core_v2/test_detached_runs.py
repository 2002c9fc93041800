"""A detached run from the script's side: its runner, its streams and its end, against a small server."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig.ports import free_port
from tests.trainmaster.conftest import wait_until
from tests.trainmaster.core_v2.detached_server import DetachedServer, Script
from trainmaster.common.api.errors import UnauthenticatedException
from trainmaster.experimental import core_v2
from trainmaster.runner.state import read_shipped, read_state

IMPORT = "import os, sys, time\nfrom determined.experimental import core_v2\n"
BEGIN = IMPORT + "core_v2.init(config=core_v2.Config(name='n'))\n"
#: what is printed never comes to the process's own descriptor
NOTEBOOK = "import io\nsys.stdout = io.StringIO()\n"


class Scripts:
    """Starts scripts, each with its folder and server, and ends what is left of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: list[DetachedServer] = []
        self.started: list[Script] = []

    def server(self) -> DetachedServer:
        self.servers.append(DetachedServer())
        return self.servers[-1]

    def start(self, server: DetachedServer, text: str, **more: str) -> Script:
        folder = self.folder / str(len(self.started))
        folder.mkdir()
        self.started.append(Script(folder, server, text, **more))
        return self.started[-1]

    def ranks(self, server: DetachedServer, text: str, size: int) -> list[Script]:
        """As torchrun starts them: on one machine, in one home folder."""
        folder, port = self.folder / "ranks", str(free_port())
        folder.mkdir()
        common = {
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
            "GROUP_RANK": "0",
            "GROUP_WORLD_SIZE": "1",
        }
        ranks = [
            Script(folder, server, text, **common, RANK=str(rank), LOCAL_RANK=str(rank), MASTER_PORT=port)
            for rank in range(size)
        ]
        self.started += ranks
        return ranks


@pytest.fixture
def scripts(tmp_path: Path) -> Iterator[Scripts]:
    scripts = Scripts(tmp_path)
    yield scripts
    for script in scripts.started:
        script.end()
    for server in scripts.servers:
        server.down()


def reported(server: DetachedServer) -> list[tuple[str, int]]:
    """(file, step) of all metrics, in their order."""
    cores = [record for record in server.records("core") if record["d"]["type"] == "metrics"]
    return [(record["f"], record["d"]["steps_completed"]) for record in cores]


def test_ranks_report_store_shards_and_write_logs_as_one_run(scripts: Scripts) -> None:
    server = scripts.server()
    text = f"""{IMPORT}
import subprocess
distributed = core_v2.DistributedContext.from_torch_distributed()
core_v2.init(config=core_v2.Config(name="n", hparams={{"lr": 0.1}}, data={{"k": 1}}), distributed=distributed)
rank = distributed.rank
print("I am", rank, core_v2.info.trial.hparams, core_v2.info.user_data)
print("oh", file=sys.stderr)
subprocess.run(["printf", r"child \\377 of %s\\n", str(rank)], check=True)
for step in range(10):
    if step % 2 == rank:
        core_v2.train.report_training_metrics(steps_completed=step, metrics={{"loss": 1.0, "rank": rank}})
with core_v2.checkpoint.store_path({{"steps_completed": 9, f"rank_{{rank}}": "ok"}}, shard=True) as (path, uuid):
    (path / f"state_{{rank}}").write_text(str(rank))
if rank == 0:
    print(core_v2.url_reverse_webui_exp_view())
core_v2.close()
print("after the run", core_v2.train)
"""
    results = [script.result() for script in scripts.ranks(server, text, 2)]
    assert [code for code, _, _ in results] == [0, 0], results
    exit_record = server.wait_for(server.exit, 60)
    assert exit_record["code"] == 0 and exit_record["first_failure"] is None
    assert sorted(reported(server)) == [
        (f"core.rank{step % 2}.jsonl", step) for step in [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]
    ]
    (checkpoint,) = [r["d"] for r in server.records("core") if r["d"]["type"] == "checkpoint"]
    assert checkpoint["metadata"] == {"steps_completed": 9, "rank_0": "ok", "rank_1": "ok"}
    assert set(server.completed[checkpoint["uuid"]]) == {"state_0", "state_1", "metadata.json"}
    page = f"{server.address['urls'][0]}/det/experiments/7"
    hello = "I am {rank} {{'lr': 0.1}} {{'k': 1}}"
    assert server.texts("rank0.stdout") == [hello.format(rank=0), "child \udcff of 0", page]
    assert server.texts("rank1.stdout") == [hello.format(rank=1), "child \udcff of 1"]
    assert "oh" in server.texts("rank1.stderr")
    assert "I am 0" in results[0][1] and results[0][1].endswith("after the run None\n"), (
        "it went to the terminal too"
    )
    started = [body for _, path, body in server.asked if path.endswith("/start")]
    assert [(body["members"], len(body["hosts"]), body["resume"]) for body in started] == [(1, 1, False)]
    assert server.config()["searcher"] == {"name": "single", "metric": "unmanaged"}


#: a script -> its exit code, and what its log must have
ENDS = [
    (BEGIN + "raise ValueError('no such data')", 1, "no such data"),
    (
        IMPORT + NOTEBOOK + "core_v2.init(config={'name': 'n'})\nprint('in a cell')\nsys.exit(3)",
        3,
        "in a cell",
    ),
    (BEGIN + "sys.exit()", 0, ""),
    (IMPORT + "with core_v2.init_context(config={'name': 'n'}) as context:\n    1 / 0", 1, ""),
    (BEGIN + "try:\n    1 / 0\nfinally:\n    core_v2.close()", 1, ""),
    (BEGIN + "pid = os.fork()\nif not pid: sys.exit(5)\nos.waitpid(pid, 0)", 0, ""),
]


def test_a_run_ends_as_its_script_does(scripts: Scripts) -> None:
    servers = [scripts.server() for _ in ENDS]
    started = [scripts.start(servers[at], text) for at, (text, _, _) in enumerate(ENDS)]
    for server, script, (text, code, said) in zip(servers, started, ENDS, strict=True):
        result = script.result()
        assert result[0] == code, (text, result)
        exit_record = server.wait_for(
            server.exit, 60
        )  # at once, unless the machine is too busy for its runner
        assert exit_record["code"] == code, text
        assert said in "\n".join(line["m"] for line in server.lines())


def test_a_killed_rank_ends_the_run_as_an_error_that_names_it(scripts: Scripts) -> None:
    server = scripts.server()
    text = f"""{IMPORT}
distributed = core_v2.DistributedContext.from_torch_distributed()
core_v2.init(config=core_v2.Config(name="n"), distributed=distributed)
print("ready", flush=True)
distributed.allgather(None)
if distributed.rank == 1:
    time.sleep(600)
distributed.allgather(None)
"""
    first, second = scripts.ranks(server, text, 2)
    server.wait_for(lambda: server.texts("rank1.stdout") == ["ready"], 60)
    second.process.kill()
    assert first.result()[0] == 1, "it lost its peer"
    second.result()
    exit_record = server.wait_for(server.exit, 60)
    assert exit_record["first_failure"]["rank"] == 1 and exit_record["code"] != 0, exit_record
    assert any("rank 1 ended without core_v2.close()" in line["m"] for line in server.lines())


def test_nothing_is_lost_or_doubled_while_the_server_is_away(scripts: Scripts) -> None:
    server = scripts.server()
    text = f"""{BEGIN}
for step in range(30):
    core_v2.train.report_training_metrics(steps_completed=step, metrics={{"loss": 1.0}})
    print("step", step, flush=True)
    while step == 9 and not os.path.exists(sys.argv[0] + ".go"):
        time.sleep(0.02)
"""
    script = scripts.start(server, text)
    server.wait_for(lambda: "step 9" in server.texts("rank0.stdout"), 60)
    server.down()
    (scripts.folder / "0" / "train.py.go").touch()
    wait_until(lambda: script.paths.rank_end(0).exists(), 60)
    os.kill(read_state(script.paths)["runner"]["pid"], signal.SIGKILL)
    script.process.kill()  # while it waits for the server; another run takes care of what it has left
    script.process.communicate()
    server.up()
    other = Script(scripts.folder / "0", scripts.server(), BEGIN)
    scripts.started.append(other)
    server.wait_for(server.exit, 60)
    assert other.result()[0] == 0
    assert reported(server) == [("core.rank0.jsonl", step) for step in range(30)]
    assert server.texts("rank0.stdout") == [f"step {step}" for step in range(30)]


def test_a_refused_run_goes_on_and_says_so(scripts: Scripts) -> None:
    server = scripts.server()
    text = f"""{BEGIN}
while not os.path.exists(sys.argv[0] + ".go"):
    time.sleep(0.02)
"""
    script = scripts.start(server, text)
    server.wait_for(lambda: server.records("state"), 60)
    server.refuse_with = 410
    wait_until(lambda: read_shipped(script.paths)["refused"], 60)
    (scripts.folder / "0" / "train.py.go").touch()
    code, _, said = script.result()
    assert code == 0 and "did not accept the rest of this run" in said, said


@pytest.mark.parametrize(
    ("environment", "config", "said"),
    [
        ({"DET_MASTER": ""}, {}, "Set DET_MASTER"),
        ({"DET_USER_TOKEN": "another"}, {}, "Run `trainmaster user login NAME`"),
        ({}, {"external_trial_id": "t"}, "external_experiment_id is not set"),
        (
            {},
            {"hparams": {"lr": {"type": "double", "minval": 0, "maxval": 1}}},
            "hyperparameter lr is a range",
        ),
        ({}, {"nme": "n"}, "has 'nme'"),
        ({"WORLD_SIZE": "2"}, {}, "needs distributed=..."),
    ],
)
def test_what_is_missing_is_said_in_a_sentence(
    environment: dict[str, str],
    config: dict[str, Any],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = DetachedServer()
    try:
        own = {
            "DET_MASTER": server.address["urls"][0],
            "DET_USER_TOKEN": "token-of-a-user",
            "HOME": str(tmp_path),
        }
        for name, value in {**own, **environment}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises((ValueError, UnauthenticatedException)) as raised:
            core_v2.init(config=config)
        assert said in str(raised.value)
        assert core_v2.train is None and not list(tmp_path.iterdir())
    finally:
        server.down()
