"""What a process said when it died: the real words of real interpreters, among other lines."""

import subprocess
import sys

import pytest

from logs import tracebacks

BEFORE = ["step 1", "  indented chatter", "ValueError: a word that was only printed"]
AFTER = ["[rank2]:[W1121 ProcessGroupNCCL.cpp:1496] Warning: destroy_process_group() was not called"]


def said_by(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=False)
    return done.stderr.splitlines()


CHAINED = """
def f(): raise RuntimeError('inner')
try: f()
except RuntimeError as error: raise ValueError('outer') from error
"""
PROGRAMS = [
    ("1/0", "ZeroDivisionError: division by zero"),
    (CHAINED, "ValueError: outer"),
    ("raise RuntimeError('CUDA error\\nCompile with X to see more')", "RuntimeError: CUDA error"),
    ("class Odd(Exception): pass\nraise Odd", "Odd"),
    (
        "raise ExceptionGroup('many', [ValueError(1), TypeError(2)])",
        "ExceptionGroup: many (2 sub-exceptions)",
    ),
    (
        "import faulthandler, ctypes; faulthandler.enable(); ctypes.string_at(0)",
        "Fatal Python error: Segmentation fault",
    ),
]


@pytest.mark.parametrize(("program", "cause"), PROGRAMS)
@pytest.mark.parametrize("prefix", ["", "[rank2]: "])
def test_a_traceback_is_found_whole_with_its_cause(program: str, cause: str, prefix: str) -> None:
    words = [prefix + line for line in said_by(program)]
    block = tracebacks.last_block([*BEFORE, *words, *AFTER])
    assert block is not None
    assert (block.first, block.cause) == (len(BEFORE), cause)
    assert block.last >= len(BEFORE) + len(words) - 3  # a fatal error ends with a list of modules


def test_the_last_traceback_counts_and_torchruns_own_does_not() -> None:
    torchrun = [
        "Traceback (most recent call last):",
        '  File "torchrun", line 8, in <module>',
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    ]
    lines = [*said_by("int('x')"), "went on", *said_by("1/0"), *torchrun]
    block = tracebacks.last_block(lines)
    assert block is not None and block.cause == "ZeroDivisionError: division by zero"


def test_a_traceback_long_before_the_end_is_not_why() -> None:
    assert tracebacks.last_block([*said_by("1/0"), *(f"step {number}" for number in range(100))]) is None


def test_lines_without_a_traceback_have_none() -> None:
    assert tracebacks.last_block(BEFORE) is None
    assert tracebacks.last_exception(["step", "OSError: [Errno 28] No space left on device"]).startswith(
        "OSError"
    )
    assert tracebacks.last_exception(["step 1", "loss: 3"]) == ""


@pytest.mark.parametrize(
    "text",
    [
        "W1121 10:00:00.1 12 torch/distributed/elastic/api.py:900] Sending process 13 closing signal SIGTERM",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "============================================================",
    ],
)
def test_a_launchers_word_about_the_others_is_noise(text: str) -> None:
    assert tracebacks.is_noise(text)
    assert not tracebacks.is_noise("CUDA out of memory")
