"""Small parts of the command line: addresses, credentials, ids, tables, overrides, usage."""

from __future__ import annotations

import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainmaster.address import BadAddress, canonical
from trainmaster.cli import shell
from trainmaster.cli.errors import CliError, answered, unreachable
from trainmaster.cli.job import parsed
from trainmaster.cli.main import build_parser, main
from trainmaster.cli.output import local_time, table
from trainmaster.cli.submission import config_text, shortened
from trainmaster.cli.user import strong
from trainmaster.client import Client
from trainmaster.credentials import Credentials, UnreadableCredentials, salted_hash
from trainmaster.http import Answered, Unreachable


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("gpu", "http://gpu:8080"),
        ("gpu:99", "http://gpu:99"),
        ("http://gpu", "http://gpu:80"),
        ("https://gpu", "https://gpu:443"),
        ("https://gpu/base/", "https://gpu:443/base"),
        ("[::1]:9", "http://[::1]:9"),
    ],
)
def test_an_address_gets_its_scheme_and_port(written: str, meant: str) -> None:
    assert canonical(written) == meant


@pytest.mark.parametrize(
    "written", ["ftp://x", "http://", "http://a:b@x", "http://x?y=1", "http://x#y", "x:99999", "x:y"]
)
def test_an_address_with_anything_else_is_refused(written: str) -> None:
    with pytest.raises(BadAddress, match="server address"):
        canonical(written)


def test_passwords_are_hashed_as_the_published_client_does() -> None:
    assert salted_hash("") == ""
    assert salted_hash("x").startswith("c0970665531060fe306ee465c43b40eb")
    assert len(salted_hash("x")) == 128


def test_tokens_are_kept_per_server_for_their_owner_alone(tmp_path: Path) -> None:
    one, other = (Credentials(url, tmp_path) for url in ("http://a:1", "http://b:1"))
    one.remember("alice", "secret")
    one.remember("bob", "other", active=False)
    assert (one.active_user, one.token("alice"), one.token("bob")) == ("alice", "secret", "other")
    assert (other.active_user, other.token("alice"), other.pin) == (None, None, None)
    assert stat.S_IMODE((tmp_path / "auth.json").stat().st_mode) == 0o600
    one.forget("alice")
    assert (one.active_user, one.token("alice"), one.token("bob")) == (None, None, "other")


def test_commands_at_the_same_time_lose_no_token(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: Credentials(f"http://h{n}:1", tmp_path).remember("u", str(n)), range(24)))
    assert [Credentials(f"http://h{n}:1", tmp_path).token("u") for n in range(24)] == [
        str(n) for n in range(24)
    ]


def test_a_spoilt_credentials_file_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text("{")
    with pytest.raises(UnreadableCredentials, match="remove it and log in again"):
        _ = Credentials("http://a:1", tmp_path).active_user


def test_a_table_aligns_numbers_and_tames_foreign_text() -> None:
    text = table(["#", "Name"], [[1, "a\x1b[31mb"], [12, "\u2066c"]])
    assert text.splitlines() == ["  # | Name", "----+---------", "  1 | a [31mb", " 12 |  c"]


def test_a_time_names_its_zone() -> None:
    assert local_time("2026-01-02T03:04:05.678901Z")[-5] in "+-"
    assert local_time(None) == ""


@pytest.mark.parametrize(
    ("text", "good"), [("Abcdefg1", True), ("abcdefg1", False), ("Abc1", False), ("ABCDEFG1", False)]
)
def test_a_good_password_has_length_and_kinds(text: str, good: bool) -> None:
    assert strong(text) is good


def test_batch_updates_are_read_as_documented() -> None:
    assert parsed("abc.priority=1") == {"jobId": "abc", "priority": 1}
    assert parsed("abc.weight=1.5") == {"jobId": "abc", "weight": 1.5}
    assert parsed("abc.ahead-of=def") == {"jobId": "abc", "aheadOf": "def"}
    assert parsed("abc.to-top") == {"jobId": "abc", "toTop": True}
    with pytest.raises(CliError, match="takes no value"):
        parsed("abc.to-top=3")
    with pytest.raises(CliError, match="<jobID>"):
        parsed("abc.priority")
    with pytest.raises(
        CliError, match="allowed: priority, weight, max-slots, deadline, resource-pool, ahead-of, behind-of"
    ):
        parsed("abc.prio=1")


def test_a_config_is_sent_as_written_unless_overridden(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("# mine\nresources: {slots_per_trial: 1}\nrate: 1e-3\n")
    assert config_text(file, []) == file.read_text()
    assert (
        config_text(file, ["resources.slots_per_trial=2"])
        == "resources:\n  slots_per_trial: 2\nrate: 0.001\n"
    )


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"a: [", "is not YAML: line 1"),
        (b"", "is empty"),
        (b"- 1", "is not a map"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_before_anything_is_sent(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(content)
    with pytest.raises(CliError, match=sentence):
        config_text(file, [])


@pytest.mark.parametrize(
    "words",
    [
        "e create c.yaml . -f -i a -i b --template t --config a.b=1 --paused --project_id 1",
        "experiment ls -a --csv",
        "e unpause 1",
        "e lt 1 --json",
        "t logs 1 --rank 0 --rank 1 --level ERROR -f",
        "j u abc -p 3",
        "tpl l -d",
        "tpl set t t.yaml",
        "template create t t.yaml -w lab",
        "template set-value config t t.yaml",
        "template rename t u",
        "job update-batch a.priority=1 b.ahead-of=a",
        "job ls -p gpu --yaml",
        "job ls --mine --why",
        "job update abc -p 3 --resource-pool gpu --ahead-of def --dry-run -o json",
        "job update abc --to-top -y",
        "job update-batch a.position=1 --dry-run",
        "job update-batch a.to-top b.priority=3",
        "job undo",
        "u login alice",
        "user create bob --role viewer --no-password",
        "user create ada --admin",
        "user edit bob --role editor",
        "-u bob -m host:1 task ls -o json",
        "tpl ls -d",
        "agent disable gpu1 --drain",
        "w ls --sort-by name --order-by desc --limit 3 -o csv",
        "p create lab vision --description seeing --key VIS",
        "p edit lab vision --new_name sight",
        "e set max-slots 3 none",
        "e set weight 3 1.5",
        "e label add 3 night",
        "e move 3 lab vision",
        "e download-model-def 3 --output-dir /tmp",
        "user link-with-agent-user bob --agent-user bob --agent-uid 1",
        "host add alice@10.0.0.1:2222 --pool p --slots 2 --python /x --workdir /w --yes",
        "exp ls",
        "e create c.yaml . -t",
        "e lt 3 --limit 5 --offset 5 --pages all --csv",
        "t describe 3 --metrics --metrics-summary --limit 5 --csv",
        "user edit bob --admin true --active false",
    ],
)
def test_the_documented_forms_are_understood(words: str) -> None:
    assert build_parser("det").parse_args(words.split())


@pytest.mark.parametrize(
    "words",
    [
        "",
        "t",
        "nonsense",
        "e lst",
        "e pause x",
        "c",
        "job update abc --to-top --position 2",
        "t logs 1 --head 1 --tail 1",
    ],
)
def test_wrong_usage_ends_with_2(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words.split())
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("e lst", "found 'lst', allowed: create, list, "),
        ("e lst", "(did you mean list?)"),
        ("exp li", "('li' is ambiguous between list, list-trials, list-checkpoints)"),
        ("exp desc", "(did you mean describe?)"),
        ("c", "say what to do: list, describe, download, delete, rm"),
        ("e pause x", "found 'x', allowed: a whole number"),
        ("co list", "found 'co', allowed: experiment, "),
        ("e list --jsn", "experiment list: unrecognized arguments: --jsn (did you mean --json?)\nSee `"),
        ("e kill 1 2", "experiment kill: unrecognized arguments: 2\n"),
        ("e create c.yaml . --local", "trainmaster run -- python3 train.py"),
        ("e create c.yaml . --publish 80", "ssh -L"),
    ],
)
def test_a_wrong_word_is_told_what_is_allowed(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(words.split())
    assert sentence in capsys.readouterr().err


def test_a_noun_alone_lists() -> None:
    read = build_parser("det").parse_args
    for noun in ["e", "j", "a", "s", "rp", "tpl", "task", "u", "w", "cmd", "notebook", "host"]:
        assert read([noun]) == read([noun, "list"])
        assert read([noun, "--json"]).output == "json"


def test_what_the_server_refuses_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(status: int, message: str) -> str:
        return answered(Answered(status, {"message": message}, ""))

    assert said(404, "template x not found").endswith(". To list what exists, run: trainmaster template list")
    several = said(400, "invalid experiment configuration: <config>.a: found 1; <config>.b.c: found 2; or 3")
    assert several == "invalid experiment configuration, 2 errors:\n  a: found 1\n  b.c: found 2; or 3"
    assert said(400, "invalid: <config>.a: found 1") == "invalid: <config>.a: found 1"
    assert "run: trainmaster user login NAME" in said(401, "The token has expired.")
    monkeypatch.setenv("TRAINMASTER_TOKEN", "x")
    assert "It was read from TRAINMASTER_TOKEN" in said(401, "The token has expired; log in again.")
    assert "web.log" in answered(Answered(500, None, "<!doctype html>"))
    assert "http://host:port" in unreachable(Unreachable("x: [SSL: WRONG_VERSION_NUMBER] wrong version."))
    assert unreachable(Unreachable("x: [Errno 111] Connection refused.")).startswith("x: Connection refused.")


def test_a_missing_config_names_those_there_are(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("name: x\n")
    for wrong in (tmp_path, tmp_path / "d.yaml"):
        with pytest.raises(CliError, match=r"Did you mean .*/c\.yaml\?"):
            config_text(wrong, [])


def test_test_mode_trains_one_batch_of_one_trial() -> None:
    config = {
        "name": "x",
        "searcher": {"name": "adaptive_asha", "metric": "acc", "smaller_is_better": False, "max_trials": 9},
        "checkpoint_storage": {"type": "server", "save_trial_best": 3},
        "max_restarts": 5,
    }
    short = shortened(config)
    assert short["searcher"] == {
        "metric": "acc", "smaller_is_better": False, "name": "single", "max_length": {"batches": 1},
    }  # fmt: skip
    assert (short["max_restarts"], short["checkpoint_storage"]["save_trial_best"]) == (0, 0)
    assert (short["checkpoint_storage"]["type"], short["description"]) == ("server", "[test-mode] x")
    assert config["max_restarts"] == 5


def test_a_wrong_server_address_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", "ftp://x", "e", "list"]) == 2
    assert "Failed to list the experiments: The server address" in capsys.readouterr().err


def test_a_checkpoint_has_no_shorter_name_than_its_uuid(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["describe"], ["download"], ["delete", "-y"], ["rm", "-y"]):
        with pytest.raises(SystemExit, match="2"):
            main(["checkpoint", *words, "6fdb7848"])
        assert "found '6fdb7848', allowed: the full UUID of a checkpoint" in capsys.readouterr().err


def test_ssh_takes_names_of_files_as_they_are_whatever_is_in_them(tmp_path: Path) -> None:
    folder = tmp_path / "100%h, mine"
    folder.mkdir()
    record = {"id": "3f2a", "privateKey": "key", "hostKey": "ssh-ed25519 AAAA"}
    command = shell._command(Client("http://127.0.0.1:1"), record, folder, "ada")
    verbose = ["ssh", "-v", "-o", "ProxyCommand=false", *command[1:]]
    said = subprocess.run(verbose, capture_output=True, text=True, timeout=60, check=False).stderr
    assert f"identity file {folder}/key " in said
    assert any(" -u ada shell tunnel 3f2a" in word for word in command), "the login is that of the option"
    assert f'UserKnownHostsFile="{tmp_path}/100%%h, mine/known_hosts"' in command
