"""The level of a line, by the line alone: what real programs print, and prose that only looks like it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.runner.levels import level_of, levels_of

STATED = [
    # a word first
    ("INFO: started", "INFO"),
    (" WARNING: hot", "WARNING"),
    ("[ERROR] no", "ERROR"),
    ("CRITICAL:x", "CRITICAL"),
    ("WARNING text", "WARNING"),
    ("INFO started", "INFO"),
    ("ERROR", "ERROR"),
    ("FATAL - no more memory", "CRITICAL"),
    ("***ERROR*** disk", "ERROR"),
    ("WARNING:root:a message of logging.basicConfig", "WARNING"),
    ("[WARNING|logging.py:314] 2024-05-01 12:00:00,123 >> transformers", "WARNING"),
    ("INFO 05-01 12:00:00 llm_engine.py:72] vLLM", "INFO"),
    ("WARNING [05/01 12:00:00 d2.data]: detectron2", "WARNING"),
    # in colours
    ("\x1b[32mINFO\x1b[0m:     Uvicorn running", "INFO"),
    ("\x1b[1;31m2024-05-01 12:00:00.123\x1b[0m | \x1b[31mERROR   \x1b[0m | __main__:main:10 - loguru", "ERROR"),
    # behind a time
    ("2026-11-21 05:12:43,123 - root - DEBUG - text", "DEBUG"),
    ("2026-11-21 05:12:43,123 INFO text", "INFO"),
    ("2026-11-21T05:12:43.123456Z WARN text", "WARNING"),
    ("2026-11-21T05:12:43+01:00\tERROR\tmain.go:3\tzap", "ERROR"),
    ("[2026-11-21 05:12:43,123][torch.distributed][ERROR] - hydra", "ERROR"),
    ("[2023-12-01 12:00:00,123] [INFO] [real_accelerator.py:158:get_accelerator] deepspeed", "INFO"),
    ("05:12:43 | INFO | text", "INFO"),
    ("05/01/2024 12:00:00 - WARNING - __main__ - text", "WARNING"),
    ("2024-05-01 12:00:00,123 - mmdet - INFO - Epoch [1][50/100]", "INFO"),
    ("2024-05-01 12:00:00 | INFO | fairseq_cli.train | text", "INFO"),
    ("2024-05-01 12:00:00,123 __main__ ERROR text", "ERROR"),
    ("2024-05-01 12:00:00,123\tINFO worker.py:1234 -- Ray", "INFO"),
    ("24/05/01 12:00:00 WARN SparkContext: text", "WARNING"),
    ("[05/01/24 12:00:00] INFO     rich", "INFO"),
    ("[2024-05-01T12:00:00.123Z] 1234 || ERROR: text", "ERROR"),
    ("2024-05-01 12:00:00.123 [main] ERROR org.example.Main - log4j", "ERROR"),
    ("May  1 12:00:00 gpu1 app: ERROR: syslog", None),  # the host's name is a plain word
    # behind the name of a logger
    ("__main__ - INFO - text", "INFO"),
    ("wandb: WARNING text", "WARNING"),
    ("root: ERROR: text", "ERROR"),
    # glog, absl, TensorFlow, c10
    ("W1121 05:12:43.123000 1234 torch/run.py:766] text", "WARNING"),
    ("[rank0]:E1121 05:12:43.123000 1234 torch/_inductor/x.py:7] text", "ERROR"),
    ("[rank0]: E1121 05:12:43.123000 text", "ERROR"),
    ("[rank3]:[W501 12:00:00.123456789 ProcessGroupNCCL.cpp:1250] Warning: text", "WARNING"),
    ("[E ProcessGroupNCCL.cpp:475] [Rank 0] Watchdog caught collective operation timeout", "ERROR"),
    ("I0000 00:00:1714564800.123456    1234 cuda_executor.cc:1015] text", "INFO"),
    ("2024-05-01 12:00:00.123456: I tensorflow/core/util/port.cc:113] oneDNN", "INFO"),
    ("WARNING:tensorflow:From x.py", "WARNING"),
    # launchers' own marks
    ("[default1]:INFO:torch.distributed:text", "INFO"),
    ("[1,0]<stderr>:ERROR: mpirun", "ERROR"),
    ("(RayTrainWorker pid=123, ip=10.0.0.2) 2024-05-01 12:00:00,123 INFO x", "INFO"),
    ("gpu1:1234:1300 [0] NCCL INFO Bootstrap : Using eth0", "INFO"),
    ("[2024-05-01 12:00:00] gpu1:1234:1300 [0] misc/socket.cc:493 NCCL WARN Connect failed", "WARNING"),
    # Python
    ("/usr/lib/python3/torch/optim/lr.py:28: UserWarning: The epoch", "WARNING"),
    ("Traceback (most recent call last):", "ERROR"),
    ("[rank1]: Traceback (most recent call last):", "ERROR"),
    ("RuntimeError: CUDA error: an illegal memory access", "ERROR"),
    ("[rank1]: torch.OutOfMemoryError: CUDA out of memory.", "ERROR"),
    ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", "ERROR"),
    ("KeyboardInterrupt", "ERROR"),
    ("Exception: text", "ERROR"),
    ("Fatal Python error: Segmentation fault", "CRITICAL"),
]  # fmt: skip

PROSE = [
    "",
    "Error rates fall",
    "Error rate: 3%",
    "Warning signs",
    "the INFO: of it",
    "INFORMATION: x",
    "DEBUG=1 make",
    "ERROR-free run",
    "ERRORS: 0",
    "WARNINGS",
    "2026-11-21 05:12:43 all is well, no ERROR was seen",
    "epoch 3 ERROR 0.2",
    "step 12: 5 ERROR lines",
    "info: lower case",
    "[rank0]: loss 0.2",
    "[INFO1] x",
    "A1234 12:00:00.1 x",
    "I 1234",
    "E0501",
    "RuntimeErrors are many",
    "the RuntimeError: was caught",
    '  File "train.py", line 3, in main',
    "    raise ValueError('ERROR')",
    "Traceback of a trip",
    "12:00:00 done",
    "0: UserWarning: no file",
    "\x00\xff\x1b[",
]


@pytest.mark.parametrize(("line", "level"), STATED)
def test_a_line_states_its_level(line: str, level: str | None) -> None:
    assert level_of(line.encode()) == level


@pytest.mark.parametrize("line", PROSE)
def test_prose_states_none(line: str) -> None:
    assert level_of(line.encode("utf-8", "surrogateescape")) is None


LINES = st.lists(
    st.one_of(st.sampled_from([line for line, _ in STATED]), st.sampled_from(PROSE)).map(str.encode),
    min_size=1,
)


@given(LINES)
def test_lines_together_state_what_each_states_alone(lines: list[bytes]) -> None:
    alone = [(index, level_of(line)) for index, line in enumerate(lines)]
    assert levels_of(b"\n".join(lines)) == [(index, level) for index, level in alone if level]
