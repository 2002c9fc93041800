"""deploy/install.py: what pip's settings become for uv, and that pip installs where uv can't."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "deploy" / "install.py"
_spec = importlib.util.spec_from_file_location("install", SCRIPT)
assert _spec is not None and _spec.loader is not None
install = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(install)


def test_later_sections_of_pips_settings_replace_earlier_ones() -> None:
    listed = (
        ":env:.find-links='/wheels /more=wheels'\nglobal.find-links='/other'\nglobal.index-url='https://mirror/simple'\n"
        "install.index-url='https://mirror/own'\ndownload.index-url='https://elsewhere'\n"
    )
    found = install.settings_of(listed)
    assert found == {"find-links": "/wheels /more=wheels", "index-url": "https://mirror/own"}


def test_what_says_where_packages_come_from_is_passed_on_and_none_of_it_as_an_argument() -> None:
    options, variables = install.passed_on(
        {
            "cert": "/etc/own.pem",
            "constraint": "/etc/a.txt /etc/b.txt",
            "disable-pip-version-check": "1",
            "extra-index-url": "\nfile:///one\nfile:///two",
            "find-links": "/wheels /more",
            "index-url": "https://name:secret@mirror/simple",
            "timeout": "180",
        }
    )
    assert options == []
    assert variables == {
        "SSL_CERT_FILE": "/etc/own.pem",
        "UV_CONSTRAINT": "/etc/a.txt /etc/b.txt",
        "UV_EXTRA_INDEX_URL": "file:///one file:///two",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_HTTP_TIMEOUT": "180",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_INDEX_URL": "https://name:secret@mirror/simple",
        "UV_SYSTEM_CERTS": "true",
    }


@pytest.mark.parametrize(("value", "options"), [("true", ["--no-index"]), ("0", [])])
def test_an_index_that_pip_must_not_ask_is_not_asked_by_uv(value: str, options: list[str]) -> None:
    assert install.passed_on({"no-index": value})[0] == options


@pytest.mark.parametrize("name", ["proxy", "only-binary", "pre", "require-hashes"])
def test_a_setting_that_uv_would_not_follow_leaves_the_work_to_pip(name: str) -> None:
    with pytest.raises(install.OnlyPip, match=f"pip's setting {name} "):
        install.passed_on({name: "1"})


def test_a_missing_uv_leaves_the_work_to_pip() -> None:
    with pytest.raises(install.OnlyPip, match="it could not be downloaded"):
        install.install_with_uv(Path("/nowhere/uv"), ["pip"])


def test_where_uv_fails_pip_installs_and_says_so() -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    done = subprocess.run(
        [sys.executable, SCRIPT, "/bin/false", "--no-index", "pip"],  # installed already
        env={**kept, "PIP_CONFIG_FILE": os.devnull},
        capture_output=True,
        text=True,
        check=False,
    )
    said = "Installing with pip, which takes longer than uv: it ended with 1.\n"
    assert (done.returncode, done.stdout) == (0, said)
