"""Training by the trainers of other packages, on two ranks: paused in an epoch, it ends with the same weights."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig.server import Server
from tests.rig.stack import Stack, config, local_host

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.compat

LIMIT_SECONDS = 240.0
STEPS, PER_EPOCH, HELD_AT = 30, 10, 13

#: Says where it is and waits for the order to leave, so that the pause comes in the middle on every machine.
HOLD = """
import os, pathlib, time
import determined as det

def hold(step):
    if step == det.get_cluster_info().trial.hparams["held_at"]:
        print("held", flush=True)
        while not pathlib.Path(os.environ["TRAINMASTER_RUN_DIR"], "control", "preempt.json").exists():
            time.sleep(0.02)
"""

HUGGING_FACE = """
import copy, logging
import torch, transformers
import determined as det
from determined.transformers import DetCallback, overwrite_arguments
from hold import hold

class Words(torch.utils.data.Dataset):
    def __len__(self):
        return 160
    def __getitem__(self, index):
        words = torch.randint(0, 32, (8,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words}

class Hold(transformers.TrainerCallback):
    def on_step_begin(self, args, state, control, **more):
        hold(state.global_step)

args = overwrite_arguments(transformers.TrainingArguments(
    output_dir="out", per_device_train_batch_size=8, num_train_epochs=1, logging_steps=5, eval_strategy="epoch",
    save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True, seed=3,
))
torch.manual_seed(3)
shape = transformers.GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2)
model = transformers.GPT2LMHeadModel(shape)
with det.core.init(distributed=det.core.DistributedContext.from_torch_distributed()) as core_context:
    logging.basicConfig(level=logging.INFO)
    starting_over = copy.copy(args)
    starting_over.overwrite_output_dir = True
    DetCallback(core_context, starting_over)
    callback = DetCallback(core_context, args, user_data={"note": "kept"})
    trainer = transformers.Trainer(
        model, args, train_dataset=Words(), eval_dataset=Words(), callbacks=[callback, Hold()])
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
"""

LIGHTNING = """
import torch
import lightning
import determined as det
from determined.lightning import DetCallback
from hold import hold

class Shares:
    '''Each rank's batches, in an order of the epoch; it goes on where it was, as StatefulDataLoader does.'''
    def __init__(self, rank):
        self.rank, self.epoch, self.done = rank, 0, 0
    def __len__(self):
        return 10
    def __iter__(self):
        if self.done == len(self):
            self.epoch, self.done = self.epoch + 1, 0
        order = torch.randperm(20, generator=torch.Generator().manual_seed(self.epoch))[self.rank::2].tolist()
        while self.done < len(self):
            self.done += 1
            random = torch.Generator().manual_seed(order[self.done - 1])
            inputs = torch.randn(8, 4, generator=random)
            yield inputs, inputs.sum(dim=1, keepdim=True)
    def state_dict(self):
        return {"epoch": self.epoch, "done": self.done}
    def load_state_dict(self, state):
        self.epoch, self.done = state["epoch"], state["done"]

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
    def training_step(self, batch, index):
        hold(self.trainer.global_step)
        loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss
    def validation_step(self, batch, index):
        self.log("val_loss", torch.nn.functional.mse_loss(self.net(batch[0]), batch[1]), sync_dist=True)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)

lightning.seed_everything(3)
with det.core.init(distributed=det.core.DistributedContext.from_torch_distributed()) as core_context:
    ranks = core_context.distributed
    callback = DetCallback(core_context)
    trainer = lightning.Trainer(
        accelerator="cpu", strategy="ddp", devices=ranks.local_size, num_nodes=ranks.cross_size, max_epochs=3,
        log_every_n_steps=5, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        use_distributed_sampler=False, callbacks=[callback])
    validation = torch.utils.data.DataLoader([(torch.ones(4), torch.ones(1))] * 8, batch_size=4)
    trainer.fit(Module(), Shares(ranks.rank), validation, ckpt_path=callback.ckpt_path)
"""


@pytest.fixture(scope="module")
def stack(server: Server, trainers_python: Path) -> Iterator[Stack]:
    """A host of this machine with room for two jobs of two ranks."""
    with local_host(server, "trainers", slots=4, python=str(trainers_python)) as stack:
        yield stack


def train(stack: Stack, script: str, metric: str, folder: Path, held_at: int) -> int:
    hparams = {"held_at": held_at, "training_arguments": {"num_train_epochs": 3}}
    text = config(
        2,
        "python3 -m determined.launch.torch_distributed train.py",
        hyperparameters=hparams,
        searcher={"name": "single", "metric": metric, "max_length": {"epochs": 3}},
        checkpoint_storage={"type": "shared_fs", "host_path": str(folder), "save_trial_latest": 5},
    )
    return stack.submit({"train.py": script, "hold.py": HOLD}, text)


def checkpoints(stack: Stack, experiment: int) -> dict[int, str]:
    """Step to id."""
    found = stack.get(f"/api/v1/experiments/{experiment}/checkpoints")["checkpoints"]
    return {int(entry["metadata"]["steps_completed"]): entry["uuid"] for entry in found}


def steps(stack: Stack, experiment: int, group: str) -> list[int]:
    """Steps of its reports."""
    trial = stack.trial(experiment)["id"]
    rows = stack.get(f"/api/v1/trials/{trial}/workloads?limit=0")["workloads"]
    return [row[group]["totalBatches"] for row in rows if group in row]


def log(stack: Stack, experiment: int) -> list[str]:
    return [record["log"] for record in stack.records(stack.trial(experiment)["id"])]


def ended(stack: Stack, experiment: int) -> str:
    """The id of its last checkpoint."""
    state = stack.wait_end(experiment, LIMIT_SECONDS)
    trial = stack.trial(experiment)
    assert state == "STATE_COMPLETED", "\n".join(log(stack, experiment)[-60:])
    assert trial["restarts"] == 0
    return checkpoints(stack, experiment)[STEPS]


@pytest.mark.parametrize(
    ("script", "metric"),
    [(HUGGING_FACE, "eval_loss"), (LIGHTNING, "val_loss")],
    ids=["transformers", "lightning"],
)
def test_a_trainer_that_was_paused_ends_with_the_weights_of_one_that_was_not(
    stack: Stack, script: str, metric: str, tmp_path: Path
) -> None:
    straight = train(stack, script, metric, tmp_path, held_at=-1)
    paused = train(stack, script, metric, tmp_path, held_at=HELD_AT)
    stack.wait(lambda: "held" in log(stack, paused), LIMIT_SECONDS, "a rank to be held")
    stack.post(f"/api/v1/experiments/{paused}/pause")
    stack.wait(
        lambda: HELD_AT + 1 in checkpoints(stack, paused), LIMIT_SECONDS, "the checkpoint of the pause"
    )
    stack.wait(lambda: stack.experiment(paused)["state"] == "STATE_PAUSED", LIMIT_SECONDS, "the pause")
    stack.post(f"/api/v1/experiments/{paused}/activate")
    one, other = (tmp_path / ended(stack, experiment) for experiment in (straight, paused))
    assert same(weights(one), weights(other))
    for experiment in (straight, paused):
        assert steps(stack, experiment, "training") == [5, 10, 15, 20, 25, 30]
        assert steps(stack, experiment, "validation") == [10, 20, 30]
    if metric == "eval_loss":
        assert (one / f"checkpoint-{STEPS}/my_data.json").read_text() == '{"note": "kept"}'
        assert {path.name for path in one.glob("*/rng_state_*.pth")} == {"rng_state_0.pth", "rng_state_1.pth"}
        for wording in (
            f"Latest checkpoint downloaded to out/checkpoint-{HELD_AT + 1}. — The trial continues from checkpoint ",
            "Skipping downloading last checkpoint from Determined due to overwrite_output_dir=True. — The trial ",
        ):
            told = [line for line in log(stack, paused) if wording in line]
            assert told and all("det.transformers" in line for line in told), wording
            assert not [line for line in log(stack, straight) if wording in line]


def weights(folder: Path) -> dict[str, Any]:
    (file,) = [*folder.glob("*/model.safetensors"), *folder.glob("lightning.ckpt")]
    if file.suffix == ".ckpt":
        return dict(torch.load(file, weights_only=False)["state_dict"])
    return {"all": torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8)}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
