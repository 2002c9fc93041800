"""What a command config may say, and what the host then starts."""

from __future__ import annotations

import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from commands.config import check, parse
from commands.runs import entrypoint
from submissions.config.problems import ConfigError


def ran(config: dict[str, Any], folder: Path) -> str:
    """Standard output of what the host would start, as it starts it: text by the shell, a list as it is."""
    words = entrypoint(check(config).effective())
    command = ["sh", "-c", words] if isinstance(words, str) else words
    return subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False).stdout


def test_a_list_is_executed_as_it_is_and_text_goes_to_the_shell(tmp_path: Path) -> None:
    assert ran({"entrypoint": ["echo", "$HOME", "a  b"]}, tmp_path) == "$HOME a  b\n"
    assert ran({"entrypoint": "echo $((1 + 1)) | cat"}, tmp_path) == "2\n"
    assert (
        ran({"entrypoint": ["echo $((1 + 1)) | cat"]}, tmp_path) == "2\n"
    )  # a list of one, as in Determined


@pytest.mark.parametrize("given", ["pwd", ["pwd"], ["sh", "-c", "pwd"], ["pwd", "-P"]])
def test_the_work_dir_is_entered_first_and_may_be_below_the_folder(tmp_path: Path, given: object) -> None:
    inner = tmp_path / "a folder; with $signs"
    inner.mkdir()
    assert ran({"entrypoint": given, "work_dir": inner.name}, tmp_path) == f"{inner}\n"
    assert ran({"entrypoint": given, "work_dir": str(inner)}, tmp_path) == f"{inner}\n"
    assert ran({"entrypoint": given, "work_dir": "no such folder"}, tmp_path) == ""


def test_a_work_dir_that_is_missing_is_told_with_its_host_and_its_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_AGENT_ID", "gpu1")
    words = entrypoint(check({"entrypoint": "pwd", "work_dir": "/data/100% $HOME"}).effective())
    ended = subprocess.run(words, cwd=tmp_path, text=True, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "work_dir: the folder /data/100% $HOME does not exist on gpu1, or this account has no access to it. "
        "Create it there, or change work_dir in the config.\n"
    )


def test_what_lists_call_it_are_its_words_unless_it_has_a_name() -> None:
    assert check({"entrypoint": ["echo", "a b"]}).effective()["description"] == "echo 'a b'"
    assert check({"entrypoint": "  echo\n  x "}).effective()["description"] == "echo x"
    assert check({"entrypoint": "x", "description": "nightly"}).effective()["description"] == "nightly"
    assert len(check({"entrypoint": "x" * 5000}).effective()["description"]) == 100


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("8h", 28800),
        (90, 90),
        ("2026-12-01", "2026-12-01T00:00:00+00:00"),
        ("2026-12-01T08:00", "2026-12-01T08:00:00+00:00"),
        ("2026-12-01T08:00+01:00", "2026-12-01T07:00:00+00:00"),
        (datetime(2026, 12, 1, 8), "2026-12-01T08:00:00+00:00"),
    ],
)
def test_a_deadline_is_a_time_in_utc_or_seconds(text: object, kept: object) -> None:
    config = check({"entrypoint": "x", "resources": {"max_time": "1h", "deadline": text}})
    assert config.effective()["resources"]["deadline"] == kept


@pytest.mark.parametrize("text", ["soon", "2026-13-01T08:00", 0, -5, True, [1]])
def test_a_deadline_that_is_neither_is_refused(text: object) -> None:
    with pytest.raises(ConfigError, match=r"resources\.deadline.* a date and time such as 2026-12-01T08:00"):
        check({"entrypoint": "x", "resources": {"deadline": text}})


@pytest.mark.parametrize(
    ("text", "seconds"), [(90, 90), ("90s", 90), ("45m", 2700), ("1h30m", 5400), ("2d", 172800), (60.0, 60)]
)
def test_a_time_limit_is_seconds_or_text_with_units(text: object, seconds: int) -> None:
    assert check({"entrypoint": "x", "resources": {"max_time": text}}).resources.max_time == seconds


@pytest.mark.parametrize("text", ["", "soon", "1.5h", "-1", "30m1h", 0, -5, 1.5, True, "9" * 400 + "s"])
def test_other_time_limits_are_refused(text: object) -> None:
    with pytest.raises(ConfigError, match=r"resources\.max_time"):
        check({"entrypoint": "x", "resources": {"max_time": text}})


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        parse("{entrypoint: [], resources: {slots: x, weight: 0}, wrong: 1}")
    assert [problem.path for problem in refused.value.problems] == [
        "<config>.entrypoint", "<config>.resources.weight", "<config>.resources.slots", "<config>.wrong",
    ]  # fmt: skip
    assert str(refused.value).startswith("invalid command configuration: ")


def test_overrides_come_last() -> None:
    config = parse("entrypoint: x\nresources: {slots: 1}", ["resources.slots=4", "description=y"])
    assert (config.resources.slots, config.description) == (4, "y")


def test_text_that_cannot_be_stored_is_refused_wherever_it_stands() -> None:
    config: dict[str, object] = {
        "entrypoint": ["a", "\0"],
        "description": "\ud800",
        "pbs": {"known": "ok", "deep": [1, {"x": "\0"}]},
        "slurm": {"k\0": 1},
        "environment": {"environment_variables": ["TOKEN=secret\0"]},
    }
    with pytest.raises(ConfigError) as caught:
        check(config)
    faults = {problem.path: problem.found for problem in caught.value.problems}
    assert faults == {
        "<config>.entrypoint[1]": "text that contains U+0000 or half a surrogate pair",
        "<config>.description": "text that contains U+0000 or half a surrogate pair",
        "<config>.pbs.deep[1].x": "text that contains U+0000 or half a surrogate pair",
        "<config>.slurm": "a field whose name contains U+0000 or half a surrogate pair",
        "<config>.environment.environment_variables[0]": "text that contains U+0000 or half a surrogate pair",
    }
