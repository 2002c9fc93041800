"""What can be read and taken away from a server holds none of its secrets: every GET, archives opened."""

from __future__ import annotations

import base64
import io
import json
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from accounts.models import Cluster, LoginToken, User
from dispatch.runs import intake
from experiments.models import Experiment
from jobs import transitions
from jobs.models import Member
from tests.rig.api import CONFIG, uploaded
from tests.rig.web import Web
from tests.rig.world import assigned, make_host, make_project, make_user

pytestmark = pytest.mark.django_db(transaction=True)

SECRETS = {
    "a variable": "hunter2-variable",
    "the key of a bucket": "hunter2-bucket",
    "the password of an address": "hunter2-address",
    "the password of a registry": "hunter2-registry",
}
SECRET_CONFIG = (
    CONFIG
    + """
environment:
  environment_variables: [API_KEY=hunter2-variable, "DATA=postgres://ada:hunter2-address@db/x", SEED=1]
  registry_auth: {username: ada, password: hunter2-registry}
checkpoint_storage: {type: s3, bucket: b, access_key: key, secret_key: hunter2-bucket}
"""
)
#: streams without an end, and what a test cannot wait for
_SECONDS = 8.0
_MOST_BYTES = 2_000_000


def patterns(found: list[Any], before: str = "") -> Iterator[str]:
    """Every address of the server, `<kind:name>` where it takes a name."""
    for each in found:
        here = before + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from patterns(each.url_patterns, here)
        elif isinstance(each, URLPattern):
            yield here.replace("^", "").replace("$", "")


def contents(answer: bytes) -> Iterator[bytes]:
    """The bytes themselves, what is in an archive, and what stands in JSON as base64."""
    yield answer
    if zipfile.is_zipfile(io.BytesIO(answer)):
        with zipfile.ZipFile(io.BytesIO(answer)) as archive:
            yield from (archive.read(name) for name in archive.namelist())
    for text in re.findall(rb'"([A-Za-z0-9+/]{40,}={0,2})"', answer):
        if len(text) % 4 == 0:
            yield base64.b64decode(text)


def read(client: httpx.Client, path: str) -> bytes:
    got = b""
    try:
        with client.stream("GET", path, timeout=httpx.Timeout(60, read=_SECONDS)) as answer:
            assert answer.status_code < 500, (path, answer.status_code)
            for part in answer.iter_bytes():
                got += part
                if len(got) > _MOST_BYTES:
                    break
    except httpx.TimeoutException:  # it waits for more
        pass
    return got


def test_nothing_that_is_read_or_exported_holds_a_secret(web: Web) -> None:
    make_project()
    ada, admin = make_user("ada"), make_user("boss", User.Role.ADMIN)
    ada.set_password("hunter2-password")
    ada.save()
    login = LoginToken.issue(ada)
    host = make_host("gpu1", 1)
    body = {"config": SECRET_CONFIG, "modelDefinition": [uploaded("train.py", "print(1)\n")]}
    made = httpx.post(f"{web.url}/api/v1/experiments", json=body, timeout=60,
                      headers={"Authorization": f"Bearer {login}"})  # fmt: skip
    assert made.status_code < 300, made.text
    experiment = Experiment.objects.get()
    template = {
        "name": "base",
        "config": {"environment": {"environment_variables": ["API_KEY=hunter2-variable"]}},
    }
    httpx.put(f"{web.url}/api/v1/templates/base", json=template, timeout=60,
              headers={"Authorization": f"Bearer {login}"}).raise_for_status()  # fmt: skip
    trial = experiment.trials.get()
    slot = host.slots.get()
    run = assigned(task_id=trial.task_id, placement=[(host.pk, [slot.pk])], on_sufferance=False, actor="test")
    (member,) = Member.objects.filter(allocation=run)
    line = {"k": "lines", "t": 1.0, "r": 0, "s": "stdout", "m": "hello from the run"}
    intake.store(member.pk, 0, json.dumps(line).encode() + b"\n")
    secrets = {
        **SECRETS,
        "the key of the server": settings.SECRET_KEY,
        "the token of the run": transitions.run_token(run),
        "a login": login,
        "a password": User.objects.get(pk=ada.pk).password,
        "the key of proofs": Cluster.get().nonce_key,
    }
    names = {
        "experiment_id": experiment.pk, "trial_id": trial.pk, "task_id": trial.task_id, "user_id": ada.pk,
        "allocation_id": run.pk, "job_id": str(experiment.job_id), "username": "ada", "index": 0, "path": "train.py",
        "project_id": experiment.project_id, "workspace_id": experiment.project.workspace_id,
    }  # fmt: skip
    places = {
        "hosts": "gpu1",
        "agents": "gpu1",
        "templates": "base",
        "resource-pools": "default",
        "pools": "default",
    }
    looked, hello, code = 0, 0, 0
    headers = {"Authorization": f"Bearer {LoginToken.issue(admin)}"}
    with httpx.Client(base_url=web.url, timeout=120) as anyone:
        browser = Client()
        browser.force_login(admin, backend="django.contrib.auth.backends.ModelBackend")
        anyone.cookies.set("sessionid", browser.cookies["sessionid"].value)
        for pattern in patterns(get_resolver().url_patterns):
            wanted = re.findall(r"<(?:\w+:)?(\w+)>", pattern)
            noun = next((value for key, value in places.items() if key in pattern.split("/")), None)
            values = {**names, **({"name": noun} if noun else {})}
            if not set(wanted) <= set(values):
                continue
            path = "/" + re.sub(r"<(?:\w+:)?(\w+)>", lambda found, v=values: str(v[found[1]]), pattern)  # type: ignore[misc]
            anyone.headers.update(headers if path.startswith("/api/") else {})
            if not path.startswith("/api/"):
                anyone.headers.pop("Authorization", None)
            if "logout" in path or "<" in path or "(" in path:
                continue
            for content in contents(read(anyone, path)):
                looked += 1
                hello += b"hello from the run" in content
                code += b"print(1)" in content
                for what, secret in secrets.items():
                    assert secret.encode() not in content, f"{path} holds {what}"
    assert looked > 150 and hello and code, (looked, hello, code)
