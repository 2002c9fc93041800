"""Every verb of the published client, run once with real objects, and every address that it knows.

What is not here is in docs/determined.md, and says so in a sentence.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.compat.conftest import PublishedClient
from tests.compat.test_published_client import CONFIG, LASTING
from tests.compat.test_published_tour import TRAINING, UUID
from webui.api import absent
from webui.api.docs import schema

pytestmark = pytest.mark.compat

NOT_HERE = Path(__file__).resolve().parents[2] / "docs/determined.md"
PROGRAM = Path(__file__).with_name("programs") / "verbs.py"

#: In this order; `{name}` is what an earlier command said that matched the pattern behind `=>`, `<<` is what is typed.
STEPS = r"""
version
user whoami
user list
master info --json
master config show
master logs --tail 3
master cluster-message set -m "down at noon"
master cluster-message get
master cluster-message clear
agent list
slot list
slot disable compat 1
slot enable compat 1
agent disable compat --drain
agent enable compat
dev auth-token
dev bindings list
dev bindings call get_GetMe
dev curl /api/v1/me
resources raw 2026-01-01T00:00:00Z 2027-01-01T00:00:00Z
resources allocations 2026-01-01T00:00:00Z 2027-01-01T00:00:00Z
resources aggregated 2026-01-01 2026-01-02
user create walker --password Long-Word-1
user edit walker --display-name Walker
user rename walker walkers
user link-with-agent-user walkers --agent-uid 1 --agent-user daemon --agent-gid 1 --agent-group daemon
user change-password walkers << Long-Word-2\nLong-Word-2\n
user deactivate walkers
user activate walkers
token create --description walk => token=TokenID: (\d+)
token list
token describe {token}
token edit {token} --description walked
token revoke {token}
token create --description login => secret=Access-Token: (\S+)
workspace create walk
workspace list
workspace describe walk
workspace list-pools walk
workspace edit walk --name walk2
workspace archive walk2
workspace unarchive walk2
project create walk2 first
project edit walk2 first --new_name second
project list walk2
project describe walk2 second
project list-experiments walk2 second
project archive walk2 second
project unarchive walk2 second
workspace list-projects walk2
template create walk {files}/template.yaml
template set walk {files}/template.yaml
template set-value config walk {files}/template.yaml
template list
template describe walk
template remove walk
preview-search {files}/config.yaml
experiment create {files}/config.yaml {files}/short -f --config {kept} => experiment=Created experiment (\d+)
experiment wait {experiment} --polling-interval 1
experiment list
experiment describe {experiment}
experiment config {experiment}
experiment list-trials {experiment} --csv => trial=\n(\d+),
experiment list-checkpoints {experiment} --best 1 --csv => checkpoint=(UUID)
experiment logs {experiment}
experiment download {experiment} -o {files}/best
experiment download-model-def {experiment} --output-dir {files}
experiment set name {experiment} walk
experiment set description {experiment} words
experiment set gc-policy {experiment} --save-experiment-best=1 --save-trial-best=1 --save-trial-latest=2 --yes
experiment set log-retention {experiment} --days 3
experiment label add {experiment} kept
experiment label remove {experiment} kept
experiment archive {experiment}
experiment unarchive {experiment}
experiment move {experiment} walk2 second
experiment move {experiment} Uncategorized Uncategorized
experiment delete-tb-files {experiment}
trial describe {trial}
trial logs {trial}
trial download {trial} --best -o {files}/trial
trial set log-retention {trial} --forever
trial support-bundle {trial} -o {files}
checkpoint describe {checkpoint}
checkpoint download {checkpoint} -o {files}/checkpoint
tensorboard start {experiment} -d --no-browser --config environment.python={python} => board=(UUID)
tensorboard list
tensorboard config {board}
tensorboard logs {board}
tensorboard set priority {board} 10
tensorboard open {board}
tensorboard kill {board}
experiment continue {experiment} --config searcher.max_length.batches=20
experiment wait {experiment} --polling-interval 1
checkpoint rm {checkpoint} --glob weights* --yes
checkpoint delete {checkpoint} --yes
experiment create {files}/config.yaml {files}/lasting => lasting=Created experiment (\d+)
job list => job=(UUID)
job update {job} --priority 7
job update-batch {job}.priority=8
experiment set priority {lasting} 20
dev curl /api/v1/resource-pools/default -X PATCH -d '{{"scheduler": "fair_share"}}'
experiment set weight {lasting} 2
dev curl /api/v1/resource-pools/default -X PATCH -d '{{"scheduler": "priority"}}'
experiment set max-slots {lasting} 1
experiment pause {lasting}
experiment activate {lasting}
experiment cancel {lasting}
experiment kill {lasting}
experiment create {files}/config.yaml {files}/lasting => second=Created experiment (\d+)
experiment list-trials {second} --csv => doomed=\n(\d+),
trial kill {doomed}
experiment kill {second}
experiment delete {second} --yes
command run -d sleep 100 => command=(UUID)
command list
command describe {command}
command config {command}
command set priority {command} 10
command logs {command}
task list => task=(UUID)
task logs {task}
command kill {command}
command run -d sleep 100 => task=(UUID)
task kill {task}
notebook start -d --no-browser --config environment.python={python} => notebook=(UUID)
notebook list
notebook config {notebook}
notebook set priority {notebook} 10
notebook open {notebook}
notebook logs {notebook}
notebook kill {notebook}
shell start -d => shell=(UUID)
shell list
shell config {shell}
shell set priority {shell} 10
shell logs {shell}
shell show-ssh-command {shell}
shell show_ssh_command {shell}
shell open {shell} true
shell kill {shell}
task cleanup-logs
project delete walk2 second --yes
workspace delete walk2 --yes
user login admin << {password}\n
token login {secret}
user logout
""".strip()

#: What is not here. Each is refused, by the server with a sentence, or by the client, which asks for another edition.
ABSENT = r"""
auth list-providers
auth login
master config set --log.level INFO --log.color on
workspace list-members Uncategorized
resource-pool bindings list-workspaces default
task create {files}/task.yaml
task config {task}
task pause {task}
task unpause {task}
task fork {task}
model list
model create walk
model describe walk
model list-versions walk
model register-version walk {checkpoint}
model move walk -w Uncategorized
model delete walk
config-policies describe experiment
config-policies set experiment {files}/template.yaml
config-policies delete experiment
oauth client list
oauth client add walk http://127.0.0.1
oauth client remove walk
rbac my-permissions
rbac list-roles
rbac describe-role Editor
rbac list-users-roles admin
rbac list-groups-roles people
rbac assign-role Editor -u admin
rbac unassign-role Editor -u admin
resource-pool bindings add default Uncategorized
resource-pool bindings replace default Uncategorized
resource-pool bindings remove default Uncategorized
user-group create people
user-group list
user-group describe people
user-group add-user people admin
user-group change-name people persons
user-group remove-user persons admin
user-group delete persons --yes
workspace bindings list Uncategorized
workspace bindings set Uncategorized --cluster-name a --namespace b
workspace bindings delete Uncategorized --cluster-name a
workspace resource-quota set Uncategorized 5 --cluster-name a
""".strip()
#: of a trial with one checkpoint alone the client downloads none
KEPT = "checkpoint_storage.save_trial_latest=2"
BY_THE_CLIENT = "Determined Enterprise Edition"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("walk")
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "template.yaml").write_text("resources: {priority: 30}\n")
    (folder / "task.yaml").write_text("entrypoint: [sleep, '100']\n")
    for name, code in (("short", TRAINING), ("lasting", LASTING)):
        (folder / name).mkdir()
        (folder / name / "train.py").write_text(code)
    return folder


class Walk:
    """Commands of one process that has imported the client."""

    def __init__(self, det: PublishedClient, places: dict[str, str]) -> None:
        self.places = places
        words = [str(det.program.with_name("python")), str(PROGRAM), "serve"]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=det.environment(), text=True
        )

    def __call__(self, step: str) -> dict[str, Any]:
        command, _, pattern = step.partition(" => ")
        command, _, typed = command.partition(" << ")
        words = [word.format_map(self.places) for word in shlex.split(command)]
        line = {"words": words, "typed": typed.format_map(self.places).replace(r"\n", "\n")}
        assert self._process.stdin and self._process.stdout
        print(json.dumps(line), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if pattern:
            name, _, wanted = pattern.partition("=")
            found = re.search(wanted.replace("UUID", UUID), answer["said"])
            self.places[name] = found[1] if found else "none"
        return answer

    def end(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def of_the_client(det: PublishedClient, what: str) -> set[str]:
    """Its verbs, or the methods and addresses that it knows."""
    words = [str(det.program.with_name("python")), str(PROGRAM), what]
    ran = subprocess.run(words, env=det.environment(), capture_output=True, text=True, check=True)
    return set(ran.stdout.splitlines())


def verb(step: str, verbs: set[str]) -> str:
    """The longest verb that the step begins with."""
    return max((each for each in verbs if f"{step} ".startswith(f"{each} ")), key=len, default=step)


def test_every_verb_does_what_it_should_or_says_that_it_is_not_here(
    det: PublishedClient, files: Path, services_python: str
) -> None:
    verbs = of_the_client(det, "tree") - {"deploy"}  # which sets up servers of Determined itself
    steps, absent = STEPS.splitlines(), ABSENT.splitlines()
    places = {"files": str(files), "password": det.server.password, "python": services_python, "kept": KEPT}
    walk = Walk(det, places)
    try:
        assert {verb(step, verbs) for step in steps + absent} - {"dev curl"} == verbs - {"dev curl"}
        failed = [(step, answer["said"]) for step in steps if not right(answer := walk(step))]
        silent = [(step, answer["said"]) for step in absent if not refused(answer := walk(step))]
    finally:
        walk.end()
    assert not failed, "\n\n".join(map("\n".join, failed))
    assert not silent, "\n\n".join(map("\n".join, silent))


def test_the_documentation_lists_the_verbs_that_are_not_here() -> None:
    section = NOT_HERE.read_text(encoding="utf-8").partition("## What is missing")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| `det")]
    told = [verb for row in rows for verb in re.findall(r"`det ([a-z -]+)`", row[1])]
    for each in told:
        assert [step for step in ABSENT.splitlines() if f"{step} ".startswith(f"{each} ")], each
        assert not [step for step in STEPS.splitlines() if f"{step} ".startswith(f"{each} ")], each
    for step in ABSENT.splitlines():
        assert [each for each in told if f"{step} ".startswith(f"{each} ")], step


def right(answer: dict[str, Any]) -> bool:
    return answer["code"] == 0 and "Exception" not in answer["said"]


def refused(answer: dict[str, Any]) -> bool:
    said = str(answer["said"])
    has_reason = BY_THE_CLIENT in said or any(sentence in said for _, sentence in absent.ABSENT)
    return answer["code"] != 0 and has_reason and "There is nothing at" not in said


def test_every_address_that_the_client_knows_is_served_or_says_that_it_is_not_here(
    det: PublishedClient,
) -> None:
    routes = [(method.upper(), path) for path, methods in schema()["paths"].items() for method in methods]
    ours = {f"{method} {re.sub('{[^}]*}', '{}', path)}" for method, path in routes}
    unserved = of_the_client(det, "addresses") - ours
    unknown = {each for each in unserved if not absent.sentence(each.split()[1].replace("{}", "1"))}
    assert unknown == {"GET /health"}, "which is no part of the dialect, and is served"
