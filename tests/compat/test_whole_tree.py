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

from shown import absent
from tests.compat.conftest import PublishedClient
from tests.compat.test_published_client import CONFIG, LASTING
from tests.compat.test_published_tour import TRAINING, UUID
from webui.api.docs import schema

pytestmark = pytest.mark.compat

NOT_HERE = Path(__file__).resolve().parents[2] / "docs/determined.md"
PROGRAM = Path(__file__).with_name("programs") / "verbs.py"

#: In this order: a command, behind `<<` what is typed, and behind `=>` what the answer must have, a regular expression
#: whose named groups are the `{name}` of later lines. In answers, spaces are single; `.` stands for the `|` of tables.
STEPS = r"""
version => version: 0.38.1\nmaster:
user whoami => logged in as user 'admin'
master info --json => "version": "\d
master config show => checkpoint_storage:
master logs --tail 3 => \[INFO\]: user 1: \(logged_in\) by user:admin
master cluster-message set -m "down at noon" => NOTHING
master cluster-message get => message: down at noon
master cluster-message clear => NOTHING
agent list => compat . [^|]+ . [^|]+ . 2 . 0 . default . True . False
slot list => compat . default . 1 . True . False . FREE . FREE . cpu
slot disable compat 1 => Disabled slot 1 of agent compat
slot enable compat 1 => Enabled slot 1 of agent compat
agent disable compat --drain => Disabled agent compat\.\nNo tasks in progress on draining nodes\.
agent enable compat => Enabled agent compat
dev auth-token => ^\S+$
dev bindings list => ^get_GetMe$
dev bindings call get_GetMe => "username": "admin"
dev curl /api/v1/me => "username":"admin"
resources raw 2026-01-01T00:00:00Z 2027-01-01T00:00:00Z => ^experiment_id,kind,username,labels,slots,
resources allocations 2026-01-01T00:00:00Z 2027-01-01T00:00:00Z => ^allocation_id,task_type,username,workspace_name
resources aggregated 2026-01-01 2026-01-02 => ^total,total,2026-01-02,0\.0
user create walker --password Long-Word-1 => NOTHING
user edit walker --display-name Walker => Changes made to the following fields: Display Name
user rename walker walkers => NOTHING
user link-with-agent-user walkers --agent-uid 1 --agent-user daemon --agent-gid 1 --agent-group daemon => NOTHING
user change-password walkers << Long-Word-2\nLong-Word-2\n => Confirm password: $
user deactivate walkers => NOTHING
user activate walkers => NOTHING
user list => walkers . Walker . False . True . False . 1 . 1 . daemon . daemon
token create --description walk => ^TokenID: (?P<token>\d+)\nAccess-Token: \S+
token list => {token} . 1 . walk . [^|]+ . [^|]+ . False . ACCESS_TOKEN
token describe {token} => {token} . 1 . walk .
token edit {token} --description walked => "description": "walked"
token revoke {token} => Successfully revoked token {token}
token create --description login => Access-Token: (?P<secret>\S+)
workspace create walk => walk . 0 .
workspace list => Uncategorized(.|\n)+ walk .
workspace describe walk => walk . 0 .
workspace list-pools walk => walk . default
workspace edit walk --name walk2 => walk2 . 0 .
workspace archive walk2 => Successfully archived workspace walk2
workspace unarchive walk2 => Successfully un-archived workspace walk2
project create walk2 first => first . . 0 . 0$
project edit walk2 first --new_name second => second . . 0 . 0$
project list walk2 => second . . 0 . 0$
project describe walk2 second => second . (.|\n)+Associated Experiments
project list-experiments walk2 second => ID . Owner . Name
project archive walk2 second => Successfully archived project second
project unarchive walk2 second => Successfully un-archived project second
workspace list-projects walk2 => second . . 0 . 0$
template create walk {files}/template.yaml => Created template walk
template set walk {files}/template.yaml => Set template walk
template set-value config walk {files}/template.yaml => Updated template walk
template list => walk . Uncategorized
template describe walk => priority: 30
template remove walk => Removed template walk
preview-search {files}/config.yaml => 1 . train for 10 batches
experiment create {files}/config.yaml {files}/short -f --config {kept} => experiment (?P<experiment>\d+)(.|\n)+trained
experiment wait {experiment} --polling-interval 1 => NOTHING
experiment list => {experiment} . admin . compat . . COMPLETED . 100\.0%
experiment config {experiment} => save_trial_latest: 2
experiment list-trials {experiment} --csv => ^(?P<trial>\d+),COMPLETED,
experiment describe {experiment} => {experiment} . COMPLETED . 100\.0%(.|\n)+{trial} . {experiment} . COMPLETED
experiment list-checkpoints {experiment} --best 1 --csv => ^{trial},5,COMPLETED,0\.4,(?P<checkpoint>UUID),
experiment logs {experiment} => trained
experiment download {experiment} -o {files}/best => best/{checkpoint}(.|\n)+"loss": 0\.4
experiment download-model-def {experiment} --output-dir {files} => NOTHING
experiment set name {experiment} walk => Set name of experiment {experiment} to 'walk'
experiment set description {experiment} words => Set description of experiment {experiment} to 'words'
experiment set gc-policy {experiment} --save-experiment-best=1 --save-trial-best=1 --save-trial-latest=2 --yes => Set GC
experiment set log-retention {experiment} --days 3 => NOTHING
experiment label add {experiment} kept => Added label 'kept' to experiment {experiment}
experiment label remove {experiment} kept => Removed label 'kept' from experiment {experiment}
experiment archive {experiment} => Archived experiment {experiment}
experiment unarchive {experiment} => Unarchived experiment {experiment}
experiment move {experiment} walk2 second => Moved experiment {experiment} to project "second"
experiment move {experiment} Uncategorized Uncategorized => Moved experiment {experiment} to project "Uncategorized"
experiment delete-tb-files {experiment} => NOTHING
trial describe {trial} => {experiment} . COMPLETED(.|\n)+{checkpoint}
trial logs {trial} => trained
trial download {trial} --best -o {files}/trial => {experiment} . {trial} . [45] . (.|\n)+"steps_completed"
trial set log-retention {trial} --forever => NOTHING
trial support-bundle {trial} -o {files} => bundle path: \S+det-bundle-trial-{trial}-\S+\.tar\.gz
checkpoint describe {checkpoint} => {experiment} . {trial} . 5 . [^|]+ . {checkpoint}
checkpoint download {checkpoint} -o {files}/checkpoint => {files}/checkpoint
tensorboard start {experiment} -d --no-browser --config environment.python={python} => (?P<board>UUID)
tensorboard list => {board} . admin . TensorBoard . [A-Z]+ . \[{experiment}\] .
tensorboard config {board} => description: TensorBoard
tensorboard logs {board} => TensorBoard \(TensorBoard\) was assigned to an agent
tensorboard set priority {board} 10 => Set priority of tensorboard {board} to 10
tensorboard open {board} => NOTHING
tensorboard kill {board} => Killed tensorboard {board}
experiment continue {experiment} --config searcher.max_length.batches=20 => Continued experiment {experiment}
experiment wait {experiment} --polling-interval 1 => NOTHING
checkpoint rm {checkpoint} --glob weights* --yes => Removal of files from checkpoints {checkpoint} is in progress
checkpoint delete {checkpoint} --yes => Deletion of checkpoints {checkpoint} is in progress
experiment create {files}/config.yaml {files}/lasting => Created experiment (?P<lasting>\d+)
job list => (?P<job>UUID) . TYPE_EXPERIMENT . compat \({lasting}\) . 42 .
job update {job} --priority 7 => NOTHING
job update-batch {job}.priority=8 => NOTHING
job list => {job} . TYPE_EXPERIMENT . compat \({lasting}\) . 8 .
experiment set priority {lasting} 20 => Set `priority` of experiment {lasting} to 20
dev curl /api/v1/resource-pools/default -X PATCH -d '{{"scheduler": "fair_share"}}' => "changed":\["scheduler"\]
experiment set weight {lasting} 2 => Set `weight` of experiment {lasting} to 2\.0
dev curl /api/v1/resource-pools/default -X PATCH -d '{{"scheduler": "priority"}}' => "changed":\["scheduler"\]
experiment set max-slots {lasting} 1 => Set `max_slots` of experiment {lasting} to 1
experiment pause {lasting} => Paused experiment {lasting}
experiment activate {lasting} => Activated experiment {lasting}
experiment cancel {lasting} => Canceled experiment {lasting}
experiment kill {lasting} => Killed experiment {lasting}
experiment create {files}/config.yaml {files}/lasting => Created experiment (?P<second>\d+)
experiment list-trials {second} --csv => ^(?P<doomed>\d+),
trial kill {doomed} => Killed trial {doomed}
experiment kill {second} => Killed experiment {second}
experiment delete {second} --yes => Deletion of experiment {second} is in progress
command run -d sleep 100 => ^(?P<command>UUID)$
command list => {command} . admin . sleep 100 .
command describe {command} => {command} . admin . sleep 100 .
command config {command} => ^- sleep\n- '100'$
command set priority {command} 10 => Set priority of command {command} to 10
command logs {command} => Command \(sleep 100\) was assigned to an agent
task list => (?P<task>UUID) . (?P=task)\.1 . sleep 100 . 1 .
task logs {task} => Command \(sleep 100\) was assigned to an agent
command kill {command} => Killed command {command}
command run -d sleep 100 => ^(?P<task>UUID)$
task kill {task} => killed task: {task}
notebook start -d --no-browser --config environment.python={python} => (?P<notebook>UUID)
notebook list => {notebook} . admin . Notebook .
notebook config {notebook} => description: Notebook
notebook set priority {notebook} 10 => Set priority of notebook {notebook} to 10
notebook open {notebook} => NOTHING
notebook logs {notebook} => JupyterLab \(Notebook\) was assigned to an agent
notebook kill {notebook} => Killed notebook {notebook}
shell start -d => (?P<shell>UUID)
shell list => {shell} . admin . Shell .
shell config {shell} => description: Shell
shell set priority {shell} 10 => Set priority of shell {shell} to 10
shell logs {shell} => Shell \(Shell\) was assigned to an agent
shell show-ssh-command {shell} => ssh .+@{shell}
shell show_ssh_command {shell} => ssh .+@{shell}
shell open {shell} echo of the shell => of the shell
shell kill {shell} => Killed shell {shell}
task cleanup-logs => Deleted \d+ rows of log entries
project delete walk2 second --yes => Successfully deleted project second
workspace delete walk2 --yes => Successfully deleted workspace walk2
user login admin << {password}\n => Password for user 'admin': $
token login {secret} => Authenticated as admin
user logout => NOTHING
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
#: of a verb that is silent when all is well
NOTHING = r"\A\s*\Z"
#: what the client says at first, whatever it is asked
GREETING = re.compile(r"\AMaster version .* Consider upgrading the master\.\n")


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
        command, _, wanted = step.partition(" => ")
        command, _, typed = command.partition(" << ")
        words = [word.format_map(self.places) for word in shlex.split(command)]
        line = {"words": words, "typed": typed.format_map(self.places).replace(r"\n", "\n")}
        assert self._process.stdin and self._process.stdout
        print(json.dumps(line), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if wanted:
            pattern = wanted.replace("NOTHING", NOTHING).format_map(self.places).replace("UUID", UUID)
            said = re.sub(" +", " ", GREETING.sub("", answer["said"]))
            answer["found"] = re.search(pattern, said, re.MULTILINE)
            names = dict.fromkeys(re.compile(pattern).groupindex, "none")
            self.places |= answer["found"].groupdict() if answer["found"] else names
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
    return answer["code"] == 0 and bool(answer["found"])


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
