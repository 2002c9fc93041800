"""`experiment create`: check, pack, send; with --test-mode one batch of it, on the cluster; `continue` and `fork`."""

from __future__ import annotations

import argparse
import json
import posixpath
import re
import sys
import time
from pathlib import Path
from typing import Any, List, Optional, Set

import trainmaster.yamltext as yamltext
from trainmaster import context, quantities
from trainmaster.cli.errors import FAILED, OK, CliError, UsageError
from trainmaster.cli.log_options import plain
from trainmaster.cli.log_stream import (
    end_of,
    follow,
    log_of_trial,
    queued_job_of_experiment,
    tell_what_it_waits_for,
    wait_for_experiment,
)
from trainmaster.cli.output import Bar, done, lines_of, say, say_notices, state
from trainmaster.client import Client, Json
from trainmaster.overrides import BadOverride, apply_overrides

_SLOTS_EXCEEDED = "LAUNCH_WARNING_CURRENT_SLOTS_EXCEEDED"
#: what a test of one batch keeps of the searcher
_KEPT = ("metric", "smaller_is_better", "source_trial_id", "source_checkpoint_uuid")
_NO_CHECKPOINTS = {"save_experiment_best": 0, "save_trial_best": 0, "save_trial_latest": 0}


def add(verbs: Any) -> None:
    text = "submit a config and a folder of code"
    parser = verbs.add_parser("create", "config_file", help=text, run=create)
    parser.add_argument("folder", metavar="DIR", type=Path, nargs="?", help="folder of code (95 MiB at most)")
    add_follow(parser)
    add_include(parser)
    parser.add_argument("--template", metavar="NAME", help="the template to use")
    add_fields(parser, "resources.slots_per_trial=2")
    parser.add_argument("--paused", action="store_true", help="create it paused")
    parser.add_argument(
        "--project_id",
        "--project-id",
        type=int,
        metavar="N",
        help="the project (default: the config's)",
    )
    trial = parser.add_mutually_exclusive_group()
    trial.add_argument("--validate", action="store_true", help="only check whether it would be accepted")
    trial.add_argument(
        "-t",
        "--test-mode",
        "--test",
        action="store_true",
        help="test it: validate, train one batch on the cluster, and report the result",
    )
    for words in (["--local"], ["-p", "--publish"]):
        parser.add_argument(
            *words, nargs=0 if len(words) == 1 else None, action=_Unsupported, help=argparse.SUPPRESS
        )


def add_follow(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f",
        "--follow",
        "--follow-first-trial",
        action="store_true",
        help="follow the first trial's log; exit with the result",
    )


def add_include(parser: argparse.ArgumentParser) -> None:
    """What `packed` sends beside the folder."""
    parser.add_argument(
        "-i",
        "--include",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="another file or folder to send; repeatable",
    )


def add_fields(parser: argparse.ArgumentParser, example: str) -> None:
    """--config, for fields on top of a file's, and --depends-on, which is one."""
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"set a field of the config, such as {example}",
    )
    parser.add_argument(
        "--depends-on",
        action="append",
        default=[],
        metavar="JOB[:end|:failure]",
        help="start after this job has succeeded, or ended or failed: an experiment's number or a job's ID; repeatable",
    )


def fields_of(args: argparse.Namespace) -> List[str]:
    """The fields that `add_fields` has read, as `apply_overrides` takes them. Raises UsageError for one given twice."""
    fields: List[str] = args.config
    if not args.depends_on:
        return fields
    if any(field.partition("=")[0].strip() == "depends_on" for field in fields):
        raise UsageError("--depends-on and --config depends_on=... are the same field: give one of them.")
    return [*fields, f"depends_on={json.dumps(args.depends_on)}"]


class _Unsupported(argparse.Action):
    """An option of Determined's client that has no meaning here: refused, with what does the same."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
        parser.error(_INSTEAD[self.option_strings[-1]])


_INSTEAD = {
    "--local": "--local is not supported; to run the training on this machine: trainmaster run -- python3 train.py",
    "--publish": "--publish is not supported: a trial uses the ports of its host. To reach one from here: "
    "ssh -L PORT:localhost:PORT HOST",
}


def create(client: Client, args: argparse.Namespace) -> int:
    """Submit, and follow when asked to."""
    text = config_text(args.config_file, fields_of(args))
    files = packed(args.folder, args.include)
    for script in missing_scripts(yamltext.load(text), {str(file["path"]) for file in files}):
        say(f"Warning: the entrypoint names {script}, which is not among these files.", "yellow")
    request: Json = {
        "config": text,
        "modelDefinition": files,
        "activate": not args.paused,
        "validateOnly": args.validate,
    }
    request.update(
        {key: value for key, value in (("template", args.template), ("projectId", args.project_id)) if value}
    )
    if args.test_mode:
        return _try_one_batch(client, request, args)
    with Bar("Sending") as bar:
        answer = client.create_experiment(request, bar)
    _show_warnings(answer)
    if args.validate:
        done("The config and the folder are valid.")
        return OK
    return created(client, answer, args)


def created(client: Client, answer: Json, args: argparse.Namespace) -> int:
    """Say which experiment was created, and follow it when asked to."""
    experiment_id = int(answer["experiment"]["id"])
    done(f"Created experiment {experiment_id}")
    if args.paused:
        say(f"It is paused. To start it, run: trainmaster experiment activate {experiment_id}")
        return OK
    return _follow(client, experiment_id, args) if args.follow else OK


def config_text(file: Path, overrides: List[str]) -> str:
    """The config as it is written; with overrides, as it is then. Raises CliError."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise CliError(_unreadable(file, error)) from error
    except UnicodeDecodeError as error:
        raise CliError(
            f"the config {file} is not UTF-8 text: {error.reason} at byte {error.start}."
        ) from error
    try:
        config = yamltext.load(text)
    except yamltext.YamlError as error:
        raise CliError(f"the config {file} is not YAML: {error}.") from error
    if not isinstance(config, dict):
        raise CliError(
            f"the config {file} {'is empty' if config is None else 'is not a map'}, allowed: a map of fields."
        )
    if not overrides:
        return text
    try:
        return yamltext.dump(apply_overrides(config, overrides))
    except BadOverride as error:
        raise CliError(f"{error}.") from error


def _unreadable(file: Path, error: OSError) -> str:
    """Why, and which files may have been meant: those beside it, or in it where it is a folder."""
    folder = file if file.is_dir() else file.parent
    found = sorted(str(each) for kind in ("*.yaml", "*.yml") for each in folder.glob(kind))
    meant = f" Did you mean {', '.join(lines_of(found, 5))}?" if found else ""
    return f"the config {file} cannot be read: {error.strerror}.{meant}"


def packed(folder: Optional[Path], includes: List[Path]) -> List[Json]:
    """The files to send, after a word about what they are. Raises CliError."""
    if folder is None and not includes:
        return []
    try:
        listing = context.survey(folder, includes)
        with Bar("Packing") as bar:
            files = context.encode(listing, bar)
    except context.ContextError as error:
        raise CliError(str(error)) from error
    say(f"Preparing files to send: {listing.files} files, {quantities.size(listing.size)}")
    if listing.skipped:
        say(f"Skipped: {', '.join(lines_of(listing.skipped))}")
    return files


def missing_scripts(config: Any, sent: Set[str]) -> List[str]:
    """The Python files that the entrypoint names by a relative path and that are not `sent`.

    Only a hint: a host may have more, and an entrypoint may change its folder.
    """
    entrypoint = config.get("entrypoint") if isinstance(config, dict) else None
    listed = entrypoint if isinstance(entrypoint, list) else str(entrypoint or "").split()
    scripts = [str(word) for word in listed if re.fullmatch(r"[\w.][\w./-]*\.py", str(word))]
    return [script for script in scripts if posixpath.normpath(script) not in sent]


def _show_warnings(answer: Json) -> None:
    say_notices(answer)
    if _SLOTS_EXCEEDED in (answer.get("warnings") or []) and not answer.get("notices"):
        say(
            "Warning: the experiment needs more slots than the pool has now; it will wait until there are enough.",
            "yellow",
        )


def shortened(config: Json) -> Json:
    """The config with one trial of one batch, without restarts and without checkpoints that stay."""
    searcher = config.get("searcher")
    kept = {key: searcher[key] for key in _KEPT if key in searcher} if isinstance(searcher, dict) else {}
    return {
        **config,
        "description": f"[test-mode] {config.get('description') or config.get('name') or ''}".strip(),
        "searcher": {**kept, "name": "single", "max_length": {"batches": 1}},
        "scheduling_unit": 1,
        "min_validation_period": {"batches": 1},
        "max_restarts": 0,
        "checkpoint_storage": {**(config.get("checkpoint_storage") or {}), **_NO_CHECKPOINTS},
    }


def _try_one_batch(client: Client, request: Json, args: argparse.Namespace) -> int:
    """Validate, submit the shortened config, follow it to its end, archive it; the exit code of that training."""
    client.create_experiment({**request, "validateOnly": True})
    done("✔ The config and the folder are valid")
    config = yamltext.dump(shortened(yamltext.load(request["config"])))
    answer = client.create_experiment({**request, "config": config, "activate": True})
    say_notices(answer)
    experiment_id = int(answer["experiment"]["id"])
    done(f"✔ Created test experiment {experiment_id}: one batch, no restarts, no checkpoints kept")
    code = _follow(client, experiment_id, args)
    client.post(f"/api/v1/experiments/{experiment_id}/archive")
    if code == OK:
        done("✔ The training completed")
    else:
        say("✘ The training failed", "red")
    return code


def _follow(client: Client, experiment_id: int, args: argparse.Namespace) -> int:
    """Follow the first trial's log and end with the experiment's result."""
    args.reopen = f"trainmaster experiment logs -f {experiment_id}"
    args.goes_on = f"Experiment {experiment_id} keeps running."
    trial_id = first_trial(client, experiment_id, wait=True)
    args.reopen = f"trainmaster trial logs -f {trial_id}"
    say(f"Following first trial with ID {trial_id}")
    tell_what_it_waits_for(client, lambda: queued_job_of_experiment(client, experiment_id))
    source = log_of_trial(client, trial_id)
    follow(client, source.path, [], plain(), source.is_over)
    sys.stdout.flush()
    say(f"Trial log stream ended. To reopen log stream, run: {args.reopen}", "green")
    ended = wait_for_experiment(client, experiment_id)
    end_of(client, source)
    return result(experiment_id, ended)


def first_trial(client: Client, experiment_id: int, wait: bool) -> int:
    """Return its id, once there is one if told to `wait`. Raises CliError otherwise."""
    told = False
    while True:
        trials = client.trials_of(experiment_id)
        if trials:
            return int(trials[0]["id"])
        if not wait:
            raise CliError(f"experiment {experiment_id} has no trial yet.")
        if not told:
            say("Waiting for first trial to begin...")
            told = True
        time.sleep(0.5)


def result(experiment_id: int, ended: str) -> int:
    """Say how it ended; the exit code."""
    completed = ended == "STATE_COMPLETED"
    say(f"Experiment {experiment_id} ended: {state(ended)}", "green" if completed else "red")
    return OK if completed else FAILED


# --- experiment continue and fork -----------------------------------------------------------------------------


def add_again(verbs: Any) -> None:
    parser = verbs.add_parser(
        "continue",
        help="continue an ended experiment from its latest checkpoints",
        description="Continue an ended experiment from the latest checkpoints of its trials; a trial without one "
        "starts over. You can change its config, except for the project, the kind of searcher and "
        "checkpoint_storage; the config of a random or grid search cannot change at all. To use another "
        "storage, fork it instead.",
        run=_continue,
    )
    _add_options(parser, "changes to its config")
    parser = verbs.add_parser("fork", help="create a new experiment with its code and config")
    _add_options(parser, "the complete config, instead of the one it was submitted with")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--checkpoint", metavar="UUID", help="start its trials from this checkpoint")
    source.add_argument(
        "--trial", type=int, metavar="ID", help="start its trials from this trial's latest checkpoint"
    )
    parser.add_argument(
        "--template",
        metavar="NAME",
        help="the template to use (default: its own, as it was then; '' for none)",
    )
    parser.add_argument("--paused", action="store_true", help="create it paused")
    parser.set_defaults(run=_fork, action="fork the experiment")


def _add_options(parser: argparse.ArgumentParser, file: str) -> None:
    parser.add_argument("experiment_id", type=int)
    parser.add_argument("--config-file", type=Path, metavar="FILE", help=f"YAML: {file}")
    add_fields(parser, "searcher.max_length.batches=2000")
    add_follow(parser)


def _continue(client: Client, args: argparse.Namespace) -> int:
    given = args.config_file is not None
    changes = config_text(args.config_file, fields_of(args)) if given else _changed({}, args)
    answer = client.post(
        "/api/v1/experiments/continue", {"id": args.experiment_id, "overrideConfig": changes}
    )
    say_notices(answer)
    done(f"Continued experiment {args.experiment_id}")
    return _follow(client, args.experiment_id, args) if args.follow else OK


def _fork(client: Client, args: argparse.Namespace) -> int:
    template = args.template
    if args.config_file is not None:
        config = yamltext.load(config_text(args.config_file, []))
    else:
        parent = client.experiment(args.experiment_id)["experiment"]
        config = yamltext.load(parent["originalConfig"])
        template = parent.get("templateName") if template is None else template
    if not isinstance(config, dict):
        raise CliError(
            f"the config of experiment {args.experiment_id} is not a map; give one with --config-file."
        )
    if args.config_file is None:
        config.setdefault("description", f"Fork of experiment {args.experiment_id}")
    searcher = config.get("searcher")
    if (args.checkpoint or args.trial is not None) and isinstance(searcher, dict):
        searcher.pop("source_trial_id", None)
        searcher.pop("source_checkpoint_uuid", None)
        searcher.update(
            {"source_checkpoint_uuid": args.checkpoint}
            if args.checkpoint
            else {"source_trial_id": args.trial}
        )
    body = {"config": _changed(config, args), "parentId": args.experiment_id, "activate": not args.paused}
    if template:
        body["template"] = template
    answer = client.create_experiment(body)
    say_notices(answer)
    return created(client, answer, args)


def _changed(config: Json, args: argparse.Namespace) -> str:
    try:
        return yamltext.dump(apply_overrides(config, fields_of(args)))
    except BadOverride as error:
        raise UsageError(f"{error}.") from error
