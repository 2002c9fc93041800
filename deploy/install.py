#!/usr/bin/env python3
"""`pip install` by uv, which takes a fraction of the processor time, or by pip where uv can't do the same.

    .venv/bin/python deploy/install.py UV ARGUMENTS…      UV: its program, if there; ARGUMENTS: those of `pip install`

uv reads none of pip's settings. So what pip.conf and PIP_* variables say about where packages come from is passed on
to it, and a setting that has no equal here leaves the work to pip. uv's own settings are ignored, apart from those of
its cache.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# pip's sections, each before those that replace its settings
SECTIONS = ("global", "install", ":env:")
# a setting of pip: the variable of uv that says the same; addresses may hold passwords, so none is an option
VARIABLES = {
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "constraint": "UV_CONSTRAINT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_INDEX_URL",
    "retries": "UV_HTTP_RETRIES",
    "timeout": "UV_HTTP_TIMEOUT",
    "trusted-host": "UV_INSECURE_HOST",
}
# what pip does without being told: all indexes are equal, and the machine's own certificates count
AS_PIP = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_SYSTEM_CERTS": "true"}
# settings of pip that do not change what is installed, or only do so outside a virtual environment
WITHOUT_EFFECT = frozenset(
    {
        "break-system-packages",
        "cache-dir",
        "config-file",
        "disable-pip-version-check",
        "log",
        "no-color",
        "no-input",
        "no-python-version-warning",
        "no-warn-script-location",
        "progress-bar",
        "quiet",
        "require-virtualenv",
        "root-user-action",
        "verbose",
    }
)
OWN_VARIABLES = frozenset({"UV_CACHE_DIR", "UV_LINK_MODE", "UV_NO_CACHE"})
YES = frozenset({"1", "on", "t", "true", "y", "yes"})
NO = frozenset({"0", "off", "f", "false", "n", "no"})


class OnlyPip(Exception):
    """uv can't do the same as pip here; the message is the reason."""


def settings_of(listed: str) -> dict[str, str]:
    """Return the settings that `pip install` would use, of the output of `pip config list`."""
    found: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.partition(".")
        if section in found:
            found[section][name] = str(ast.literal_eval(value))
    return {name: value for section in SECTIONS for name, value in found[section].items()}


def passed_on(settings: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return options and variables that say the same to uv; OnlyPip where there are none."""
    options, variables = [], dict(AS_PIP)
    for name, value in settings.items():
        if name in VARIABLES:
            between = "," if name == "find-links" else " "
            variables[VARIABLES[name]] = between.join(value.split())
        elif name == "no-index" and value.lower() in YES | NO:
            options = ["--no-index"] if value.lower() in YES else []
        elif name not in WITHOUT_EFFECT:
            raise OnlyPip(f"pip's setting {name} has no equal there")
    return options, variables


def install_with_uv(uv: Path, arguments: list[str]) -> None:
    """OnlyPip, with what uv said, where it has not installed everything."""
    if not uv.exists():
        raise OnlyPip("it could not be downloaded")
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    options, variables = passed_on(settings_of(listed.stdout))
    kept = {name: each for name, each in os.environ.items() if not name.startswith("UV_")}
    own = {name: os.environ[name] for name in OWN_VARIABLES & os.environ.keys()}
    command = [str(uv), "--no-config", "pip", "install", "--quiet", "--python", sys.executable]
    done = subprocess.run(
        [*command, *options, *arguments],
        env={**kept, **own, **variables},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = " ".join(done.stderr.split())[:300]
        raise OnlyPip(said or f"it ended with {done.returncode}")


def main(arguments: list[str]) -> int:
    uv, rest = Path(arguments[0]), arguments[1:]
    try:
        install_with_uv(uv, rest)
    except (OnlyPip, OSError, SyntaxError, ValueError, subprocess.CalledProcessError) as reason:
        print(f"Installing with pip, which takes longer than uv: {reason}.", flush=True)
        command = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        return subprocess.run([sys.executable, *command, *rest], check=False).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
