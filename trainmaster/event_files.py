"""Where a run's files for TensorBoard lie on its host, and under which names the server keeps them."""

from __future__ import annotations

from pathlib import Path

#: there while training code chooses itself what is brought (core.TensorboardMode.MANUAL)
MANUAL_MARK = "tensorboard-manual"
#: what it has chosen, under the names that it wants
CHOSEN = "tensorboard-chosen"


def folder(run_dir: str, rank: int) -> Path:
    """Where a rank writes."""
    return Path(run_dir, "tensorboard" if rank == 0 else f"tensorboard-rank{rank}")


def is_event_file(name: str) -> bool:
    """Whether TensorBoard would show it, which is what is brought by itself."""
    return "tfevents" in name or ".trace.json" in name


def named_by_rank(path: Path, rank: int) -> Path:
    """The files of all ranks lie in one folder: those of others than 0 say whose they are."""
    return path if rank == 0 else path.with_name(f"{path.name}.rank{rank}")
