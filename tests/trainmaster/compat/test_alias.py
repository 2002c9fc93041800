"""`determined` is another name of the same modules."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainmaster.made_run import SITE, environment_of


def python(*arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment_of(None, **more),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_both_names_give_the_same_module_objects() -> None:
    done = python(
        "-c",
        "import determined as det, trainmaster, importlib\n"
        "import determined.core, determined.launch.torch_distributed as a\n"
        "import trainmaster.core, trainmaster.launch.torch_distributed as b\n"
        "from determined.core import DistributedContext as c\n"
        "from determined.launcher import wrap_rank\n"
        "import trainmaster.launch.wrap_rank\n"
        "assert det is trainmaster and a is b and det.core is trainmaster.core\n"
        "assert c is trainmaster.core.DistributedContext\n"
        "assert wrap_rank is trainmaster.launch.wrap_rank\n"
        "assert det.core.__spec__.name == 'trainmaster.core', det.core.__spec__\n"
        "assert importlib.reload(determined.core) is trainmaster.core\n",
    )
    assert done.returncode == 0, done.stderr


def test_the_other_order_of_imports_gives_the_same_objects() -> None:
    done = python("-c", "import trainmaster.core as a, determined.core as b, sys; assert a is b")
    assert done.returncode == 0, done.stderr


def test_both_names_can_be_run_with_m() -> None:
    for module in (
        "determined.launch.wrap_rank",
        "determined.launcher.wrap_rank",
        "trainmaster.launch.wrap_rank",
    ):
        done = python("-m", module, "2", "echo", "hello")
        assert done.stdout == "[rank=2] hello\n", done.stderr
    assert "empty script" in python("-m", "determined.launch.torch_distributed").stderr


@pytest.mark.parametrize("package", ["determined.launch", "determined.launcher", "trainmaster.launch"])
@pytest.mark.parametrize(
    "name", ["autohorovod", "deepspeed", "horovod", "tensorflow", "torch_distributed", "wrap_rank"]
)
def test_help_of_a_launch_module_names_the_module_that_was_called(package: str, name: str) -> None:
    done = python("-m", f"{package}.{name}", "-h")
    assert done.stdout.startswith(f"usage: python3 -m {package}.{name} "), done.stderr
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_line_of_the_hosts_own_package_works_beside_ours(tmp_path: Path) -> None:
    published = tmp_path / "site" / "determined" / "cli"
    published.mkdir(parents=True)
    (published.parent / "__init__.py").touch()
    (published / "__init__.py").write_text("def main(): print('the published one')\n")
    (published / "__main__.py").write_text("from determined.cli import main\nmain()\n")
    program, code = tmp_path / "det", "from determined.cli import main\nmain()\n"
    program.write_text(code)
    for words in ([str(program)], ["-X", "utf8", str(program)], ["-m", "determined.cli"]):
        done = python(*words, PYTHONPATH=f"{SITE}:{tmp_path / 'site'}")
        assert done.stdout == "the published one\n", done.stderr


def test_what_we_do_not_have_is_a_module_not_found_that_says_whose_package_this_is() -> None:
    done = python("-c", "import determined.nonsense")
    assert "ModuleNotFoundError: No module named 'determined.nonsense'" in done.stderr
    assert "is provided by Trainmaster here" in done.stderr and "sdk: installed" not in done.stderr
    for code in ("from determined import nonsense", "from determined.core import Nonsense"):
        said = python("-c", code).stderr
        assert "ImportError: module 'determined" in said and "has no such name either" in said, said


def test_the_hosts_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.host_was_here = __file__")
    path = f"{environment_of(None)['PYTHONPATH']}:{tmp_path}"
    done = python("-c", "import sys, determined; print(sys.host_was_here)", PYTHONPATH=path)
    assert done.stdout == f"{tmp_path}/sitecustomize.py\n", done.stderr


def test_the_hosts_own_package_is_used_when_the_config_says_so(tmp_path: Path) -> None:
    (tmp_path / "determined.py").write_text("mine = True")
    path = f"{SITE}:{tmp_path}"
    done = python(
        "-c", "import determined; print(determined.mine)", PYTHONPATH=path, TRAINMASTER_SDK="installed"
    )
    assert done.stdout == "True\n", done.stderr


def test_programs_that_never_ask_load_nothing_of_ours() -> None:
    done = python("-c", "import sys; print([name for name in sys.modules if name.startswith('trainmaster')])")
    assert done.stdout == "[]\n", done.stderr


def test_what_we_do_not_have_says_what_to_use_instead() -> None:
    cases = {
        "import determined.util": "ModuleNotFoundError: No module named 'determined.util'",
        "from determined import util": "ImportError: determined.util is not here",
        "import determined as det; det.EnvContext": "AttributeError: determined.EnvContext is not here",
        "from determined.core import DummyTrainContext": "core.init() off the cluster",
        "import determined.keras": "TFKerasTrial in the published package",
        "from determined.pytorch import deepspeed": "determined.launch.deepspeed",
        "from determined.common.experimental import Determined": "determined.experimental.client",
        "from determined import searcher": "ImportError: determined.searcher is not here",
        "import determined.searcher": "over the REST API with `searcher: {name: custom}`",
        "import determined.core._heartbeat": "internal to Determined's own harness. To use the host's own package",
        "from determined.core import _dummy_init": "internal to Determined's own harness",
    }
    for code, said in cases.items():
        done = python("-c", code)
        assert said in done.stderr and "rainmaster" in done.stderr, (code, done.stderr)
    fine = (
        "import determined as det; assert not hasattr(det.core, 'DummyTrainContext')\n"
        "config = det.ExperimentConfig(searcher={'metric': 'loss'}); assert config.get_searcher_metric() == 'loss'\n"
        "try: raise ValueError\n"
        "except det.errors.CheckpointNotFound: pass\n"
        "except ValueError: print('as ever')\n"
    )
    assert python("-c", f"import determined.errors\n{fine}").stdout == "as ever\n"
    assert "has no attribute 'nonsense'" in python("-c", "import determined as det; det.nonsense").stderr


def test_a_package_of_early_releases_says_what_has_become_of_it_unless_the_host_has_it(
    tmp_path: Path,
) -> None:
    done = python("-c", "from determined_common.experimental import Determined")
    assert "No module named 'determined_common': later releases of Determined have it as" in done.stderr
    (tmp_path / "determined_common.py").write_text("own = 7\n")
    kept = python(
        "-c", "import determined_common; print(determined_common.own)", PYTHONPATH=f"{SITE}:{tmp_path}"
    )
    assert kept.stdout == "7\n", kept.stderr
