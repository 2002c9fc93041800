"""`experiment`: submit, list, look at, steer."""

from __future__ import annotations

import argparse
import json
from typing import Any, List

import trainmaster.yamltext as yamltext
from trainmaster.cli import (
    checkpoint,
    config_schema,
    experiment_edits,
    output,
    submission,
    tensorboard,
    workloads,
)
from trainmaster.cli.arguments import Adder
from trainmaster.cli.errors import CliError
from trainmaster.cli.log_options import add_log_options
from trainmaster.cli.log_retention import add_set
from trainmaster.cli.log_stream import log_of_trial, show_log, wait_for_experiment
from trainmaster.cli.output import Column, done, local_time, percent, say, state
from trainmaster.client import Client, Json

#: verb → (what is printed afterwards, help)
_ACTIONS = {
    "pause": ("Paused", "save a checkpoint and free the slots"),
    "activate": ("Activated", "resume a paused experiment"),
    "cancel": ("Canceled", "save a checkpoint, then stop for good"),
    "kill": ("Killed", "stop immediately, without a checkpoint"),
    "archive": ("Archived", "hide it from lists"),
    "unarchive": ("Unarchived", "show it in lists again"),
}
_OLDER = {"activate": ["unpause"]}


def add(add_noun: Adder) -> None:
    verbs = add_noun("experiment", aliases=["e"], help="submit and manage experiments").add_verbs()
    submission.add(verbs)
    _add_views(verbs)
    for verb, (_, text) in _ACTIONS.items():
        verbs.add_parser(verb, "experiment_id", aliases=_OLDER.get(verb, []), help=text, run=_act)
    _add_waiting(verbs)
    submission.add_again(verbs)
    settings = add_set(verbs, "experiment")
    checkpoint.add_gc_policy(settings)
    experiment_edits.add_settings(settings)
    experiment_edits.add(verbs)
    checkpoint.add_download_of_experiment(verbs)
    tensorboard.add(verbs, "experiment")
    config_schema.add(verbs, "experiment")


def _add_views(verbs: Any) -> None:
    parser = verbs.add_parser("list", aliases=["ls"], help="list your experiments (or everyone's)", run=_list)
    parser.add_argument("-a", "--all", action="store_true", help="include all users and archived experiments")
    parser.add_argument("--show_project", "--show-project", action="store_true")
    output.add_part(parser, 200)
    output.add_format(parser)
    parser = verbs.add_parser("describe", help="show its state, config and trials", run=_describe)
    parser.add_argument("experiment_ids", metavar="ID,ID…")
    workloads.add_table_options(parser)
    output.add_format(parser)
    parser = verbs.add_parser("config", help="show the config in force, as YAML")
    parser.add_argument("experiment_id", type=int)
    parser.set_defaults(run=_config, action="show the config")
    parser = verbs.add_parser("logs", help="show the log of its first trial, or of a chosen one")
    parser.add_argument("experiment_id", type=int)
    parser.add_argument("--trial", metavar="ID", help="first (default), latest, or a trial's id")
    add_log_options(parser)
    parser.set_defaults(run=_logs, action="show the log")
    parser = verbs.add_parser("list-trials", aliases=["lt"], help="list the trials of an experiment")
    parser.add_argument("experiment_id", type=int)
    output.add_part(parser)
    output.add_format(parser)
    parser.set_defaults(run=_list_trials, action="list the trials")
    parser = verbs.add_parser(
        "list-checkpoints", aliases=["lc"], help="list the checkpoints of an experiment"
    )
    parser.add_argument("experiment_id", type=int)
    parser.add_argument("--best", type=int, metavar="N", help="only the N best")
    output.add_part(parser)
    output.add_format(parser)
    parser.set_defaults(run=_list_checkpoints, action="list the checkpoints")


def _add_waiting(verbs: Any) -> None:
    parser = verbs.add_parser("wait", help="wait until it ends; exit with 0 only if it completed")
    parser.add_argument("experiment_id", type=int)
    parser.add_argument("--polling-interval", type=float, default=5, metavar="SECONDS")
    parser.set_defaults(run=_wait, action="wait for the experiment")
    parser = verbs.add_parser("delete", help="permanently delete it with its metrics, logs and checkpoints")
    parser.add_argument("experiment_id", type=int)
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    parser.set_defaults(run=_delete, action="delete the experiment")


EXPERIMENTS = [
    Column("ID", lambda row: row["id"]),
    Column("Owner", lambda row: row["username"]),
    Column("Name", lambda row: row["name"]),
    Column("Parent ID", lambda row: row.get("forkedFrom")),
    Column("State", lambda row: state(row["state"])),
    Column("Progress", lambda row: percent(row.get("progress"))),
    Column("Started", lambda row: local_time(row.get("startTime"))),
    Column("Ended", lambda row: local_time(row.get("endTime"))),
    Column("Resource Pool", lambda row: "unmanaged" if row.get("unmanaged") else row.get("resourcePool")),
    Column("Log Policies", lambda row: ", ".join(row.get("logLabels") or [])),
]
TRIALS = [
    Column("Trial ID", lambda row: row["id"]),
    Column("State", lambda row: state(row["state"])),
    Column("H-Params", lambda row: row.get("hparams"), lambda value: json.dumps(value)[:60]),
    Column("Started", lambda row: local_time(row.get("startTime"))),
    Column("Ended", lambda row: local_time(row.get("endTime"))),
    Column("# of Batches", lambda row: row.get("totalBatchesProcessed")),
]


def _list(client: Client, args: argparse.Namespace) -> None:
    query: List[Any] = [("sortBy", "SORT_BY_ID"), ("orderBy", "ORDER_BY_DESC")]
    columns = list(EXPERIMENTS)
    if args.all:
        columns.append(Column("Archived", lambda row: row.get("archived", False)))
    else:
        query += [("archived", "false"), ("users", client.me()["username"])]
    if args.show_project:
        columns[2:2] = [
            Column("Workspace", lambda row: row.get("workspaceName")),
            Column("Project", lambda row: row.get("projectName")),
        ]
    rows = client.pages("/api/v1/experiments", "experiments", query, output.limit(args), args.offset)
    output.show(rows, columns, args.output)


def _ids(text: str) -> List[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise CliError(f"found {text!r}, allowed: numbers of experiments, such as 3 or 3,4.") from None


def _describe(client: Client, args: argparse.Namespace) -> None:
    found: List[Json] = []
    for number in _ids(args.experiment_ids):
        found.append({**client.experiment(number), "trials": client.trials_of(number)})
    if args.metrics and args.output in output.STRUCTURED:
        for trial in (trial for one in found for trial in one["trials"]):
            trial["workloads"] = workloads.of_trial(client, int(trial["id"]))
    if args.output in output.STRUCTURED:
        output.structured(found, args.output)
        return
    if args.metrics or args.outdir:
        trials = [trial for one in found for trial in one["trials"]]
        tables = [
            ("Experiment", "experiments", [one["experiment"] for one in found], EXPERIMENTS),
            ("Trials", "trials", trials, [TRIALS[0], _OF_EXPERIMENT, *TRIALS[1:]]),
        ]
        workloads.show_tables(client, tables, trials, args)
        return
    if args.output == "csv":
        output.show([one["experiment"] for one in found], EXPERIMENTS, "csv")
        return
    for one in found:
        output.show_one({**one["experiment"], "job": one.get("jobSummary") or {}}, _DETAILS, "table")
        print()
        output.show(one["trials"], [*TRIALS, *_TRIAL_RESULTS], "table")


_OF_EXPERIMENT = Column("Experiment ID", lambda row: row["experimentId"])
_DETAILS = [
    *EXPERIMENTS[:4],
    Column("Description", lambda row: row.get("description")),
    Column("Labels", lambda row: ", ".join(row.get("labels") or [])),
    *EXPERIMENTS[4:],
    Column("Queue", lambda row: _place(row["job"])),
    Column("Searcher", lambda row: row.get("searcherType")),
    Column("Checkpoints", lambda row: row.get("checkpointCount")),
]
_TRIAL_RESULTS = [
    Column("Restarts", lambda row: row.get("restarts")),
    Column("Log Policies", lambda row: ", ".join(row.get("logLabels") or [])),
    Column("Best Validation", lambda row: _metrics(row.get("bestValidation"))),
]


def _place(job: Json) -> str:
    if not job:
        return ""
    ahead = job.get("jobsAhead", -1)
    jobs = "" if ahead < 0 else ", 1 job ahead" if ahead == 1 else f", {ahead or 'no'} jobs ahead"
    return state(job.get("state", "")) + jobs


def _metrics(validation: Any) -> str:
    metrics = ((validation or {}).get("metrics") or {}).get("avgMetrics") or {}
    return ", ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in metrics.items()
    )


def _config(client: Client, args: argparse.Namespace) -> None:
    print(yamltext.dump(client.experiment(args.experiment_id)["config"]), end="")


def _list_trials(client: Client, args: argparse.Namespace) -> None:
    trials = client.trials_of(args.experiment_id, output.limit(args), args.offset)
    output.show(trials, TRIALS, args.output)


def _list_checkpoints(client: Client, args: argparse.Namespace) -> None:
    path = f"/api/v1/experiments/{args.experiment_id}/checkpoints"
    best = [("sortByAttr", "SORT_BY_SEARCHER_METRIC"), *checkpoint.THERE]
    query: List[Any] = best if args.best else []
    rows = client.pages(path, "checkpoints", query, args.best or output.limit(args), args.offset)
    output.show(rows, checkpoint.COLUMNS, args.output)


def _act(client: Client, args: argparse.Namespace) -> None:
    client.post(f"/api/v1/experiments/{args.experiment_id}/{args.verb}")
    done(f"{_ACTIONS[args.verb][0]} experiment {args.experiment_id}")


def _delete(client: Client, args: argparse.Namespace) -> None:
    question = f"Delete experiment {args.experiment_id} with its metrics, logs and checkpoints? This cannot be undone."
    output.confirm(question, "Nothing was deleted.", args.yes)
    client.call("DELETE", f"/api/v1/experiments/{args.experiment_id}")
    done(f"Deletion of experiment {args.experiment_id} is in progress")


def _wait(client: Client, args: argparse.Namespace) -> int:
    return submission.result(
        args.experiment_id, wait_for_experiment(client, args.experiment_id, max(0.1, args.polling_interval))
    )


def _logs(client: Client, args: argparse.Namespace) -> int:
    submission.first_trial(client, args.experiment_id, wait=args.follow)
    return show_log(client, log_of_trial(client, _chosen_trial(client, args)), args)


def _chosen_trial(client: Client, args: argparse.Namespace) -> int:
    ids = [int(trial["id"]) for trial in client.trials_of(args.experiment_id)]
    if args.trial in (None, "first"):
        if len(ids) > 1 and args.trial is None:
            others = "choose another with --trial ID, or the newest with --trial latest"
            say(
                f"Experiment {args.experiment_id} has {len(ids)} trials; showing the first, trial {ids[0]}; {others}."
            )
        return ids[0]
    if args.trial == "latest":
        return ids[-1]
    if args.trial in map(str, ids):
        return int(args.trial)
    shown = ", ".join(output.lines_of([str(one) for one in ids]))
    raise CliError(f"experiment {args.experiment_id} has no trial {args.trial}; it has {shown}.")
