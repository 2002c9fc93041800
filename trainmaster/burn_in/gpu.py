"""One GPU by PyTorch: matrix products, its memory, copies to and from it, and whether what comes back is right.

What the products should be is found out by the processor, from sums of whole numbers, for some of the rows.
"""

from __future__ import annotations

from typing import Any, Iterator

from trainmaster.burn_in.piece import GIGA, Pace, Result, true_rows
from trainmaster.burn_in.processor import model

_ROWS = 8192
#: products between two looks at the clock, and of how many of their rows the right values are known
_PRODUCTS, _KNOWN_ROWS = 4, 32
_GIB = 1024**3
_COPIED = 256 * 1024 * 1024
#: of its free memory
_SHARE_CHECKED = 0.8
_PATTERNS = (0x5555555555555555, -0x5555555555555556)


def gpu(pace: Pace, torch: Any, place: int, slot: int) -> Iterator[Result]:
    """`place`: its number among the visible ones; `slot`: its number on the host."""
    device = torch.device("cuda", place)
    torch.cuda.set_device(device)
    yield from _products(pace, torch, device, slot)
    yield _bandwidth(pace, torch, device, slot)
    torch.cuda.empty_cache()
    yield _memory(pace, torch, device, slot)
    torch.cuda.empty_cache()
    yield from _copies(pace, torch, device, slot)


def _products(pace: Pace, torch: Any, device: Any, slot: int) -> Iterator[Result]:
    whole = torch.randint(0, 4, (_ROWS, _ROWS), dtype=torch.int8).eq(
        0
    )  # sums far below 2048 are exact in float16
    known = range(0, _ROWS, _ROWS // _KNOWN_ROWS)
    rows, truth = torch.tensor(list(known), device=device), true_rows(torch, whole, known).half().to(device)
    left, wrong = whole.half().to(device), torch.zeros((), dtype=torch.int64, device=device)
    first = left @ left

    def multiply() -> None:
        for _ in range(_PRODUCTS):
            product = left @ left
            wrong.add_((product[rows] != truth).sum() + (product != first).sum())
        torch.cuda.synchronize(device)

    value = pace.per_second(_PRODUCTS * 2 * _ROWS**3 / GIGA, multiply)
    yield Result("matmul", round(value, 1), f"float16 by PyTorch {torch.__version__}", slot)
    yield Result("wrong_results", int(wrong), "", slot)


def _bandwidth(pace: Pace, torch: Any, device: Any, slot: int) -> Result:
    source = torch.zeros(_GIB // 8, dtype=torch.int64, device=device)
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)
        torch.cuda.synchronize(device)

    return Result("memory", round(pace.per_second(_GIB / GIGA, copy), 1), "", slot)


def _memory(pace: Pace, torch: Any, device: Any, slot: int) -> Result:
    """Fill most of the free memory with patterns, and count what is not the same afterwards."""
    free, _ = torch.cuda.mem_get_info(device)
    parts = [
        torch.empty(_GIB // 8, dtype=torch.int64, device=device)
        for _ in range(int(free * _SHARE_CHECKED) // _GIB)
    ]
    wrong = 0
    for pattern in _PATTERNS:
        for part in parts:
            pace.check()
            part.fill_(pattern)
        for part in parts:
            pace.check()
            wrong += int((part != pattern).sum())
    return Result("wrong_memory", wrong, "", slot)


def _copies(pace: Pace, torch: Any, device: Any, slot: int) -> Iterator[Result]:
    here = torch.zeros(_COPIED, dtype=torch.uint8).pin_memory()
    there = torch.zeros(_COPIED, dtype=torch.uint8, device=device)

    def copy(target: Any, source: Any) -> None:
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize(device)

    to = pace.per_second(_COPIED / GIGA, lambda: copy(there, here))
    yield Result("copy", round(to, 2), model(), slot)
    back = pace.per_second(_COPIED / GIGA, lambda: copy(here, there))
    yield Result("copy_back", round(back, 2), model(), slot)
