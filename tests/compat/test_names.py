"""Every public name of the published package is one of ours, or says what to use instead."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.compat.published_names import public_names, public_shapes
from tests.trainmaster.made_run import environment_of
from trainmaster.compat import absent

pytestmark = pytest.mark.compat

LOOK = """
import importlib, json, sys
wanted, lacking = json.load(sys.stdin), []
sys.path += sys.argv[1:]
for module, names in wanted.items():
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "determined":
            raise  # this Python lacks a package, so the module cannot be judged
        lacking.append([module, str(error)])
        continue
    for name in names:
        try:
            getattr(found, name)
        except AttributeError as error:
            lacking.append([f"{module}.{name}", str(error)])
json.dump(lacking, sys.stdout)
"""
COMPARE = """
import importlib, inspect, json, sys
sys.path += sys.argv[1:]
differing = []

def attributes_of(kind):
    # those that its class declares or its constructor sets
    declared = [name for each in kind.__mro__ for name in vars(each).get("__annotations__", {})]
    return {*declared, *getattr(kind.__init__, "__code__", attributes_of.__code__).co_names}

for dotted, shape in json.load(sys.stdin).items():
    module, _, name = dotted.rpartition(".")
    try:
        ours = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        if not str(error).startswith(("No module named 'determined", "determined.", "module 'determined")):
            raise
        continue  # test_every_public_name_is_here_or_says_what_to_use judges it
    for member, parameters in shape.items():
        whole = f"{dotted}.{member}" if member else dotted
        found = getattr(ours, member, None) if member else ours
        if found is None and member not in attributes_of(ours):
            differing.append(whole)
        elif callable(found):
            taken = inspect.signature(found).parameters
            if not any(each.kind is each.VAR_KEYWORD for each in taken.values()):
                differing += [f"{whole}({each}=)" for each in parameters if each not in taken]
json.dump(differing, sys.stdout)
"""


@pytest.fixture(scope="module")
def python(trainers_python: Path, services_python: str) -> list[str]:
    """A Python that has every package that modules of ours import, and the folders that it lacks for that."""
    services = Path(services_python).parent.parent.glob("lib/python3*/site-packages")
    return [str(trainers_python), *map(str, services)]


def asked(python: list[str], code: str, wanted: object) -> Any:
    """Return what the code finds in a run's Python."""
    program, *folders = python
    done = subprocess.run(
        [program, "-c", code, *folders], input=json.dumps(wanted), env=environment_of(None), text=True,
        capture_output=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def published(det_program: Path) -> Path:
    """The package that was installed beside `det`."""
    (root,) = (det_program.parent.parent / "lib").glob("python3*/site-packages/determined")
    return root


def used(names: list[str], table: tuple[tuple[str, str], ...]) -> set[str]:
    own = [name.partition(".")[2] for name in names]
    return {pattern for pattern, _ in table if any(re.fullmatch(pattern, name) for name in own)}


def test_every_public_name_is_here_or_says_what_to_use(published: Path, python: list[str]) -> None:
    wanted = public_names(published)
    assert len(wanted) > 150 and "PyTorchTrial" in wanted["determined.pytorch"]
    lacking = asked(python, LOOK, wanted)
    unsaid = [
        name for name, said in lacking if (instead := absent.sentence(name)) is None or instead not in said
    ]
    assert not unsaid
    told = {
        pattern for name, _ in lacking for pattern, said in absent.ABSENT if said == absent.sentence(name)
    }
    assert told == {pattern for pattern, _ in absent.ABSENT}, "each row of the table is about something"


def test_every_member_and_parameter_of_public_classes_and_functions_is_here(
    published: Path, python: list[str]
) -> None:
    wanted = public_shapes(published)
    assert wanted["determined.core.TrainContext"]["report_metrics"] == ["group", "steps_completed", "metrics"]
    assert wanted["determined.pytorch.init"][""][:1] == ["hparams"]
    lacking = asked(python, COMPARE, wanted)
    patterns = {pattern for pattern, _ in absent.UNLIKE}
    assert not [name for name in lacking if not used([name], absent.UNLIKE)]
    assert used(lacking, absent.UNLIKE) == patterns, "each row of the table is about something"


def test_the_comparison_finds_what_is_missing(python: list[str]) -> None:
    wanted = {
        "determined.core.TrainContext": {"report_metrics": ["group", "colour"], "report_weather": []},
        "determined.core.init": {"": ["distributed", "weather"]},
    }
    assert asked(python, COMPARE, wanted) == [
        "determined.core.TrainContext.report_metrics(colour=)",
        "determined.core.TrainContext.report_weather",
        "determined.core.init(weather=)",
    ]


def test_names_of_older_releases_say_what_to_use(python: list[str]) -> None:
    imports = {
        "determined.searcher": ["SearchMethod", "LocalSearchRunner", "RemoteSearchRunner"],
        "determined.estimator": ["EstimatorTrial", "load_estimator_from_checkpoint_path"],
        "determined.pytorch": ["LightningAdapter", "ClipGradsL2Norm", "reset_parameters", "SkipBatchSampler",
                               "PyTorchTrialController"],
        "determined.pytorch.lightning": ["LightningAdapter"],
        "determined.pytorch.dsat": [],
        "determined.tensorpack": [],
        "determined.experimental": ["create", "create_trial_instance", "init_native", "keras", "estimator"],
        "determined.profiler": ["ProfilerAgent"],
        "determined.profile": [],
        "determined.monkey_patch": [],
        "determined.callback": [],
    }  # fmt: skip
    lacking = asked(python, LOOK, imports)
    for name, said in lacking:
        assert absent.sentence(name) in said and "sdk: installed" not in said, (name, said)
    assert {name for name, _ in lacking} == {
        f"{module}{each and f'.{each}'}"
        for module, names in imports.items()
        for each in (names if module in ("determined.pytorch", "determined.experimental") else [""])
    }
    assert used([name for name, _ in lacking], absent.OLDER) == {pattern for pattern, _ in absent.OLDER}
