"""The Python client beside a server: names, queries, who asks, trust, and files that arrive."""

from __future__ import annotations

import io
import ssl
import subprocess
import sys
import tarfile
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.trainmaster.made_run import environment_of, make_run
from tests.trainmaster.test_http import Echo, own_certificate, serving, url
from trainmaster.common.api import errors
from trainmaster.errors import CheckpointStateException
from trainmaster.experimental import _checkpoint, _metrics, _session, _trial, client
from trainmaster.experimental._session import Certificate, Session, Trust

UUID = "0b0d6c1e-1f53-4a4e-9b43-2f3d5a6b7c8d"
NAMES = """
import sys
from determined.experimental import client, Checkpoint, Determined, Experiment, ExperimentReference, ModelSortBy
from determined.experimental import OrderBy, Project, Trial, TrialOrderBy, TrialReference, TrialSortBy
from determined.common.api import errors
from determined.errors import CheckpointStateException
import trainmaster.experimental.client as own
assert client is own and Experiment is own.Experiment is ExperimentReference and TrialOrderBy is OrderBy
assert errors.NotFoundException.__mro__[1] is errors.APIException
assert "yaml" not in sys.modules and "torch" not in sys.modules
"""


def test_determineds_names_are_ours_and_need_no_package() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", NAMES], env=environment_of(None), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_lists_of_checkpoints_are_ordered_by_a_field_a_metric_or_the_searchers() -> None:
    from trainmaster.experimental._vocabulary import checkpoint_query, metric_order

    assert checkpoint_query(None, None) == [("sortByAttr", "SORT_BY_SEARCHER_METRIC")]
    by_name = [("sortByMetric", "loss"), ("orderBy", "ORDER_BY_ASC")]
    assert checkpoint_query("loss", metric_order("loss", smaller_is_better=True)) == by_name
    with pytest.raises(AssertionError, match="must be given together"):
        checkpoint_query("loss", None)
    with pytest.raises(ValueError, match="name of a metric"):
        checkpoint_query(7, client.OrderBy.ASC)  # type: ignore[arg-type]


def test_times_and_filters_of_logs_are_those_of_the_dialect() -> None:
    at = _metrics.moment("2026-01-31T12:00:00.5Z")
    assert at == datetime(2026, 1, 31, 12, 0, 0, 500_000, UTC)
    query = _trial.log_query(None, [0, 3], None, client.LogLevel.ERROR, 0, "2026-01-31T12:00:00Z", None, "x")
    assert query == [
        ("rankIds", 0), ("rankIds", 3), ("levels", "LOG_LEVEL_ERROR"), ("levels", "LOG_LEVEL_CRITICAL"),
        ("timestampBefore", "1970-01-01T00:00:00Z"), ("timestampAfter", "2026-01-31T12:00:00Z"), ("searchText", "x"),
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"timestampBefore is 1\.5"):
        _trial.log_query(None, None, None, None, 1.5, None, None, None)  # type: ignore[arg-type]


def test_inside_a_run_the_run_asks_whoever_submitted_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path / "run")
    (folder / "server.json").write_text('{"urls": ["http://127.0.0.1:9"], "cert_sha256": "ab"}')
    monkeypatch.setenv("TRAINMASTER_RUN_DIR", str(folder))
    monkeypatch.setenv("DET_USER", "eve")
    monkeypatch.delenv("DET_PASS", raising=False)
    session = client.Determined()._session
    assert (session.master, session.token) == ("http://127.0.0.1:9", "run-token")
    assert session.address() == {"urls": ["http://127.0.0.1:9"], "cert_sha256": "ab"}
    with pytest.raises(errors.UnauthenticatedException, match="needs a password"):
        client.Determined(user="bob")


def test_an_own_certificate_is_trusted_by_its_file_and_no_other(tmp_path: Path) -> None:
    certificate, key, pin = own_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server):
        address = url(server, "https")
        given = _session._trust(address, Certificate(path=str(certificate)), None)
        assert given == Trust(pin)
        anybody = _session._trust(address, Certificate(noverify=True), None)
        for trust in (given, anybody):
            assert Session(address, trust).get("/x") is not None
        for trust in (Trust(), Trust("0" * 64)):
            with pytest.raises(errors.MasterNotFoundException):
                Session(address, trust).get("/x")


def checkpoint_in(folder: Path, **changes: Any) -> client.Checkpoint:
    record = {
        "uuid": UUID, "state": "STATE_COMPLETED", "metadata": {"steps_completed": 3},
        "resources": {"inner/": "0", "inner/weights": "3"},
        "training": {
            "trialId": 1, "experimentId": 2, "hparams": {},
            "experimentConfig": {"checkpoint_storage": {"type": "directory", "container_path": str(folder)}},
        },
        **changes,
    }  # fmt: skip
    return client.Checkpoint._of(Session("http://127.0.0.1:9", Trust()), record)


def test_a_checkpoint_of_a_shared_folder_is_copied_whole_or_not_at_all(tmp_path: Path) -> None:
    stored, target = tmp_path / "nfs" / UUID, tmp_path / "here"
    (stored / "inner").mkdir(parents=True)
    (stored / "inner/weights").write_text("12")
    found = checkpoint_in(tmp_path / "nfs")
    with pytest.raises(RuntimeError, match=r"lacks 'inner/weights'"):
        found.download(str(target))
    assert not target.exists() and [path.name for path in tmp_path.iterdir()] == ["nfs"]
    (stored / "inner/weights").write_text("123")
    assert found.download(str(target), mode=client.DownloadMode.DIRECT) == str(target)
    assert (target / "inner/weights").read_text() == "123"
    assert '"steps_completed": 3' in (target / "metadata.json").read_text()
    with pytest.raises(FileNotFoundError, match="mount that storage"):
        checkpoint_in(tmp_path / "other").download(str(tmp_path / "b"), mode=client.DownloadMode.DIRECT)
    with pytest.raises(CheckpointStateException, match="STATE_DELETED"):
        checkpoint_in(tmp_path, state="STATE_DELETED").download(str(target))


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b"])
def test_an_archive_cannot_write_outside_of_its_folder(tmp_path: Path, name: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(name))
    packed.seek(0)
    with (
        tarfile.open(fileobj=packed) as tar,
        pytest.raises(errors.APIException, match="the archive is rejected"),
    ):
        list(_checkpoint._members(UUID, tar, tmp_path))


@pytest.mark.parametrize("call", ["create_model", "get_model", "list_models", "get_model_labels"])
def test_what_the_server_does_not_have_is_said(call: str) -> None:
    with pytest.raises(NotImplementedError, match=f"{call}: this server has no model registry"):
        getattr(client, call)()
