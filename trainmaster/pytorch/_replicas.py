"""PyTorch's process group, and models that are the same on all ranks."""

from __future__ import annotations

import os
from typing import Any, Iterable, List, Optional

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from trainmaster.core import DistributedContext

_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class Replica(DistributedDataParallel):
    """DistributedDataParallel with the attributes of the model itself.

    Without gradients it is the plain model: a rank may then run it alone, on as many batches as it has.
    """

    def forward(self, *inputs: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return self.module(*inputs, **named)
        return super().forward(*inputs, **named)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module":  # not yet there, while DistributedDataParallel is being built
                raise
            return getattr(self.module, name)

    def level_buffers(self) -> None:
        """Give all ranks the chief's buffers (running means), which each has gone on with by its own batches."""
        for buffer in self.module.buffers():
            sent = buffer.contiguous()  # a transposed buffer is not, and only such can be sent
            dist.broadcast(sent, 0)
            if sent is not buffer:
                with torch.no_grad():
                    buffer.copy_(sent)


def replicate(model: Any, device: Any, compress: bool) -> Any:
    """The model as a replica, all of which begin with the chief's weights; unchanged when it learns nothing."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        return model
    replica = Replica(model, device_ids=[device.index] if device.type == "cuda" else None)
    sparse = any(
        getattr(module, "sparse", False) for module in model.modules()
    )  # embeddings, packed by themselves
    if device.type == "cpu" and not sparse:
        _settle_packing(replica)
    if compress:
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        replica.register_comm_hook(None, fp16_compress_hook)
    return replica


def _settle_packing(replica: Replica) -> None:
    """Let DistributedDataParallel pack the gradients for good before the first batch, by a pass without the data.

    It packs them anew after a process's first backward pass, and the packing decides in which order the numbers of
    three and more ranks are added: a training that was paused would differ in the last bit from one that was not.
    """
    model = replica.module
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    replica.module = _Touching(learning, model.buffers())
    try:
        replica().backward()
    finally:
        replica.module = model
    for parameter in learning:
        parameter.grad = None


class _Touching(torch.nn.Module):
    """In a model's place: uses its parameters, and runs neither its forward pass nor the hooks on it."""

    def __init__(self, parameters: List[Any], buffers: Iterable[Any]) -> None:
        super().__init__()
        self._used = parameters
        # DistributedDataParallel looks for them before each forward pass
        for number, buffer in enumerate(buffers):
            self.register_buffer(str(number), buffer)

    def forward(self) -> Any:
        return torch.stack([parameter.sum().real.float() for parameter in self._used]).sum() * 0


def bare(model: Any) -> Any:
    """The user's own model."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def replicas(models: List[Any]) -> List[Replica]:
    return [model for model in models if isinstance(model, Replica)]


def join(distributed: Optional[DistributedContext]) -> Optional[DistributedContext]:
    """Form PyTorch's process group if torchrun has started this process, as one of several ranks or alone.

    Returns the given context, or one made of torchrun's variables, or None for a process alone. ValueError when
    there are several ranks and nothing says where they meet.
    """
    launched = all(name in os.environ for name in _TORCHRUN)
    if distributed is None and launched:
        distributed = DistributedContext.from_torch_distributed()
    if distributed is not None and (launched or distributed.size > 1) and not joined():
        if not launched:
            raise ValueError(
                f"There are {distributed.size} ranks, but torch.distributed is not initialized: start the program "
                "with `python3 -m determined.launch.torch_distributed`, or call init_process_group() first."
            )
        if torch.cuda.is_available():
            torch.cuda.set_device(distributed.local_rank % torch.cuda.device_count())
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    return distributed


def joined() -> bool:
    """True when PyTorch's process group has been formed."""
    return bool(dist.is_available() and dist.is_initialized())


def leave() -> None:
    """End PyTorch's process group, if there is one."""
    if joined():
        dist.destroy_process_group()


def device_of(distributed: DistributedContext) -> Any:
    """This rank's GPU, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", distributed.local_rank % torch.cuda.device_count())
