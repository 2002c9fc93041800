"""Agreement of all ranks on one sharded checkpoint: which files it has, and which rank brings each."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Dict, List, Optional, Set, Tuple

from trainmaster.core._distributed import DistributedContext
from trainmaster.core._records import merge_metadata
from trainmaster.file_digest import sha256_of


@dataclass
class Shard:
    """What one rank brings: files of a folder, which several ranks of a host may share."""

    rank: int
    folder: Optional[Tuple[int, int, int]]  # (host, device, inode) of the folder, None without one
    files: Dict[str, int]
    metadata: Dict[str, Any]
    problem: Optional[str] = None


@dataclass
class Agreement:
    """What all ranks agreed on; `owners` says which rank brings each file."""

    resources: Dict[str, int] = field(default_factory=dict)
    metadata: Dict[str, Any] = field(default_factory=dict)
    owners: Dict[str, int] = field(default_factory=dict)
    problem: Optional[str] = None


def identity(distributed: DistributedContext, folder: Optional[Path]) -> Optional[Tuple[int, int, int]]:
    """Return an identity that is equal for all ranks of a host that use the same folder, by whatever path."""
    if folder is None:
        return None
    status = folder.stat()
    return (distributed.cross_rank, status.st_dev, status.st_ino)


def agree(
    distributed: DistributedContext, shard: Shard, folder: Optional[Path], compare: bool = True
) -> Agreement:
    """All ranks call; all get the same agreement, or the same RuntimeError.

    With `compare` a file that comes from different folders must be the same in all of them.
    """
    shards: Optional[List[Shard]] = distributed.gather(shard)
    doubtful = distributed.broadcast(_doubtful(shards) if shards is not None and compare else {})
    digests = {
        name: sha256_of(folder / name) for name in doubtful if folder is not None and name in shard.files
    }
    all_digests = distributed.gather(digests)
    result = _conclude(shards, all_digests) if shards is not None and all_digests is not None else None
    agreement: Agreement = distributed.broadcast(result)
    if agreement.problem:
        raise RuntimeError(agreement.problem)
    return agreement


def settle(distributed: DistributedContext, problem: Optional[str]) -> None:
    """All ranks call when they have done their part; RuntimeError on all of them if one could not."""
    problems = [(rank, text) for rank, text in enumerate(distributed.allgather(problem)) if text]
    if problems:
        rank, text = problems[0]
        raise RuntimeError(f"The sharded checkpoint was not stored: rank {rank}: {text}")


def _doubtful(shards: List[Shard]) -> Set[str]:
    """Files that come from more than one folder."""
    folders: Dict[str, Set[Tuple[int, int, int]]] = {}
    for shard in shards:
        for name in shard.files:
            if shard.folder is not None:
                folders.setdefault(name, set()).add(shard.folder)
    return {name for name, places in folders.items() if len(places) > 1}


def _conclude(shards: List[Shard], digests: List[Dict[str, str]]) -> Agreement:
    for shard in shards:
        if shard.problem:
            return Agreement(
                problem=f"The sharded checkpoint was not stored: rank {shard.rank}: {shard.problem}"
            )
    conflicts = _conflicts(digests)
    if conflicts:
        named = "; ".join(f"{name} (ranks {', '.join(map(str, ranks))})" for name, ranks in conflicts.items())
        return Agreement(
            problem=f"refusing to upload with files conflicts: different content under one name: {named}"
        )
    try:
        metadata = merge_metadata([(shard.rank, shard.metadata) for shard in shards])
    except RuntimeError as error:
        return Agreement(problem=str(error))
    agreement = Agreement(metadata=metadata)
    for shard in shards:
        for name, size in shard.files.items():
            agreement.resources.setdefault(name, size)
            agreement.owners.setdefault(name, shard.rank)
    return agreement


def _conflicts(digests: List[Dict[str, str]]) -> Dict[str, List[int]]:
    seen: Dict[str, Dict[str, List[int]]] = {}
    for rank, own in enumerate(digests):
        for name, value in own.items():
            seen.setdefault(name, {}).setdefault(value, []).append(rank)
    return {
        name: sorted(chain.from_iterable(by.values())) for name, by in sorted(seen.items()) if len(by) > 1
    }
