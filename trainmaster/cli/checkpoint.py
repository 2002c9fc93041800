"""`checkpoint`: list, look at, download, delete; what `experiment` and `trial` download; `experiment set gc-policy`."""

from __future__ import annotations

import argparse
import uuid
from pathlib import Path
from typing import Any, List, Tuple
from urllib.parse import quote

from trainmaster import quantities
from trainmaster.cli import checkpoint_download, output
from trainmaster.cli.arguments import Adder, count
from trainmaster.cli.errors import CliError, UsageError
from trainmaster.cli.output import Column, done, local_time, say, state
from trainmaster.client import Client, Json
from trainmaster.quantities import counted

_SORTS = {
    "step": "SORT_BY_BATCH_NUMBER",
    "metric": "SORT_BY_SEARCHER_METRIC",
    "time": "SORT_BY_END_TIME",
    "state": "SORT_BY_STATE",
}
#: what can be downloaded, as a query
THERE: List[Tuple[str, Any]] = [("states", "STATE_COMPLETED"), ("states", "STATE_PARTIALLY_DELETED")]
_STATES = ["active", "completed", "error", "deleted", "partially_deleted"]


def add(add_noun: Adder) -> None:
    verbs = add_noun("checkpoint", aliases=["c"], help="list, download and delete checkpoints").add_verbs()
    parser = verbs.add_parser("list", aliases=["ls"], help="list the checkpoints of an experiment or trial")
    whose = parser.add_mutually_exclusive_group(required=True)
    whose.add_argument("experiment_id", metavar="EXPERIMENT", type=int, nargs="?")
    whose.add_argument("--trial", type=int, metavar="ID")
    parser.add_argument("--state", action="append", choices=_STATES, help="only in this state; repeatable")
    parser.add_argument("--sort", choices=list(_SORTS), default="time", help="sort order; metric: best first")
    parser.add_argument("--reverse", action="store_true", help="reverse the order")
    parser.add_argument("--limit", type=int, default=0, metavar="N")
    parser.add_argument("--offset", type=int, default=0, metavar="N")
    output.add_format(parser)
    parser.set_defaults(run=_list, action="list the checkpoints")
    parser = verbs.add_parser(
        "describe", help="show its files, metadata, metrics, and why it is kept", form=True, run=_describe
    )
    parser.add_argument("uuid", metavar="UUID", type=full_uuid)
    parser = verbs.add_parser("download", help="download its files to this machine", run=_download)
    parser.add_argument("uuid", metavar="UUID", type=full_uuid)
    checkpoint_download.add_options(parser, "checkpoints/UUID")
    _add_deletion(verbs)


def _size(record: Json) -> int:
    return sum(int(size) for size in (record.get("resources") or {}).values())


COLUMNS = [
    Column("Trial ID", lambda row: (row.get("training") or {}).get("trialId")),
    Column("# of Batches", lambda row: (row.get("metadata") or {}).get("steps_completed")),
    Column("State", lambda row: state(row["state"])),
    Column("Validation Metric", lambda row: (row.get("training") or {}).get("searcherMetric")),
    Column("UUID", lambda row: row["uuid"]),
    Column("Resources", lambda row: row.get("resources"), lambda value: counted(len(value), "file")),
    Column("Size", _size, quantities.size),
    Column("Reported", lambda row: local_time(row.get("reportTime"))),
]
_DETAILS = [
    Column("UUID", lambda row: row["uuid"]),
    Column("State", lambda row: state(row["state"])),
    Column("Experiment ID", lambda row: (row.get("training") or {}).get("experimentId")),
    Column("Trial ID", lambda row: (row.get("training") or {}).get("trialId")),
    Column("Steps Completed", lambda row: (row.get("metadata") or {}).get("steps_completed")),
    Column("Validation Metric", lambda row: (row.get("training") or {}).get("searcherMetric")),
    Column("Report Time", lambda row: local_time(row.get("reportTime"))),
    Column("Storage", lambda row: row.get("storage")),
    Column("Written On", lambda row: row.get("host")),
    Column(
        "Size",
        lambda row: f"{quantities.size(_size(row))} in {counted(len(row.get('resources') or {}), 'file')}",
    ),
    Column("Kept Because", lambda row: "; ".join(row.get("keptBecause") or []) or None),
    Column("Used By", lambda row: ", ".join(_trials(row)) or None),
    Column("Deletion Pending", lambda row: row.get("deletionWaitsFor")),
    Column("Metadata", lambda row: row.get("metadata")),
]


def _trials(row: Json) -> List[str]:
    return [f"trial {each['trialId']}" for each in row.get("startedTrials") or []]


def _list(client: Client, args: argparse.Namespace) -> None:
    where = f"trials/{args.trial}" if args.trial is not None else f"experiments/{args.experiment_id}"
    query: List[Tuple[str, Any]] = [("sortByAttr", _SORTS[args.sort])]
    if args.reverse:
        downwards = args.sort != "metric" or _smaller_is_better(client, where)
        query.append(("orderBy", "ORDER_BY_DESC" if downwards else "ORDER_BY_ASC"))
    query += [("states", f"STATE_{name.upper()}") for name in args.state or []]
    rows = client.pages(f"/api/v1/{where}/checkpoints", "checkpoints", query, args.limit, args.offset)
    output.show(rows, COLUMNS, args.output)


def _smaller_is_better(client: Client, where: str) -> bool:
    kind, _, number = where.partition("/")
    experiment_id = int(number) if kind == "experiments" else int(client.trial(int(number))["experimentId"])
    searcher = client.experiment(experiment_id)["config"].get("searcher") or {}
    return bool(searcher.get("smaller_is_better", True))


def record_of(client: Client, uuid: str) -> Json:
    return dict(client.get(f"/api/v1/checkpoints/{quote(uuid, safe='')}")["checkpoint"])


def _describe(client: Client, args: argparse.Namespace) -> None:
    record = record_of(client, args.uuid)
    output.show_one(record, _DETAILS, args.output)
    if args.output == "table":
        print()
        rows = [{"path": path, "size": int(size)} for path, size in sorted(record["resources"].items())]
        columns = [Column("File", lambda row: row["path"]), Column("Bytes", lambda row: row["size"])]
        output.show(rows, columns, "table")


def _download(client: Client, args: argparse.Namespace) -> None:
    folder = Path(args.output_dir or Path("checkpoints", args.uuid))
    record = record_of(client, args.uuid)
    _save(client, record, folder, args)


def _save(client: Client, record: Json, folder: Path, args: argparse.Namespace) -> None:
    checkpoint_download.download(client, record, folder, args)
    if not args.quiet:
        step = (record.get("metadata") or {}).get("steps_completed")
        done(f"Downloaded checkpoint {record['uuid']} (step {step}) to {folder}")


def add_download_of_experiment(verbs: Any) -> None:
    parser = verbs.add_parser(
        "download", help="download its best checkpoints, each into a folder named after its UUID"
    )
    parser.add_argument("experiment_id", type=int)
    parser.add_argument(
        "--top-n", type=int, default=1, metavar="N", help="number of checkpoints (default: 1)"
    )
    _add_sorting(parser)
    checkpoint_download.add_options(parser, "checkpoints")
    parser.set_defaults(run=_download_of_experiment, action="download the checkpoints")


def add_download_of_trial(verbs: Any) -> None:
    parser = verbs.add_parser("download", help="download its best, latest, or a chosen checkpoint")
    parser.add_argument("trial_id", type=int)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--best", action="store_true")
    which.add_argument("--latest", action="store_true")
    which.add_argument("--uuid", type=full_uuid)
    _add_sorting(parser)
    checkpoint_download.add_options(parser, "checkpoints/UUID")
    parser.set_defaults(run=_download_of_trial, action="download the checkpoint")


def _add_sorting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sort-by", metavar="METRIC", help="the validation metric to sort by (default: the searcher's)"
    )
    parser.add_argument(
        "--smaller-is-better",
        type=output.boolean,
        metavar="true|false",
        help="whether smaller values of that metric are better; required with --sort-by",
    )


def _best(client: Client, where: str, count: int, args: argparse.Namespace) -> List[Json]:
    """The best of those that can be downloaded and have the metric, best first. Raises CliError for none."""
    if (args.sort_by is None) != (args.smaller_is_better is None):
        raise UsageError("--sort-by and --smaller-is-better must be given together.")
    query = list(THERE)
    if args.sort_by is None:
        query.append(("sortByAttr", _SORTS["metric"]))
    else:
        query += [
            ("sortByMetric", args.sort_by),
            ("orderBy", "ORDER_BY_ASC" if args.smaller_is_better else "ORDER_BY_DESC"),
        ]
    rows = client.pages(f"/api/v1/{where}/checkpoints", "checkpoints", query, count)
    measured = [row for row in rows if _has_metric(row, args.sort_by)]
    if not measured:
        raise CliError(
            f"{where.replace('s/', ' ')} has no complete checkpoint with "
            f"{f'the metric {args.sort_by}' if args.sort_by else 'a validation'} at its step."
        )
    return measured


def _has_metric(row: Json, metric: Any) -> bool:
    training = row.get("training") or {}
    if metric is None:
        return training.get("searcherMetric") is not None
    return metric in ((training.get("validationMetrics") or {}).get("avgMetrics") or {})


def _download_of_experiment(client: Client, args: argparse.Namespace) -> None:
    for record in _best(client, f"experiments/{args.experiment_id}", max(1, args.top_n), args):
        folder = Path(args.output_dir or "checkpoints", record["uuid"])
        _save(client, record, folder, args)


def _download_of_trial(client: Client, args: argparse.Namespace) -> None:
    if args.sort_by is not None and not args.best:
        raise UsageError("--sort-by requires --best.")
    where = f"trials/{args.trial_id}"
    if args.uuid:
        record = record_of(client, args.uuid)
    elif args.best:
        record = _best(client, where, 1, args)[0]
    else:
        query = [
            *THERE,
            ("sortByAttr", _SORTS["step"]),
            ("orderBy", "ORDER_BY_DESC"),
        ]
        rows = client.pages(f"/api/v1/{where}/checkpoints", "checkpoints", query, 1)
        if not rows:
            raise CliError(f"trial {args.trial_id} has no complete checkpoint yet.")
        record = rows[0]
    folder = Path(args.output_dir or Path("checkpoints", record["uuid"]))
    _save(client, record, folder, args)


# --- what goes for ever is shown and asked first --------------------------------------------------------------


def full_uuid(text: str) -> str:
    """An argument's type: a checkpoint has no shorter name."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        problem = f"found {text!r}, allowed: the full UUID of a checkpoint, as printed by `checkpoint list`"
        raise argparse.ArgumentTypeError(problem) from None


def _full_uuids(text: str) -> List[str]:
    return [full_uuid(part) for part in text.split(",") if part]


def _add_deletion(verbs: Any) -> None:
    for verb, text in (
        ("delete", "permanently delete checkpoints with all their files"),
        ("rm", "remove files that match --glob; without it, refresh the list of files"),
    ):
        parser = verbs.add_parser(verb, help=text)
        parser.add_argument("uuids", metavar="UUID[,UUID…]", nargs="+", type=_full_uuids)
        parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
        if verb == "rm":
            parser.add_argument(
                "--glob",
                action="append",
                default=[],
                help="files such as optimizer.pt or shards/**; repeatable",
            )
        parser.set_defaults(
            run=_delete if verb == "delete" else _remove_files,
            action="delete the checkpoints" if verb == "delete" else "remove the files",
        )


def _uuids(args: argparse.Namespace) -> List[str]:
    return [each for word in args.uuids for each in word]


def _delete(client: Client, args: argparse.Namespace) -> None:
    preview = client.post("/api/v1/checkpoints/deletion-preview", {"checkpointUuids": _uuids(args)})
    for refusal in preview["refusals"]:
        raise CliError(str(refusal))
    there = [each for each in preview["checkpoints"] if each["state"] != "STATE_DELETED"]
    chosen = [each["uuid"] for each in there]
    if gone := [each["uuid"] for each in preview["checkpoints"] if each["uuid"] not in chosen]:
        say(f"Already deleted: {', '.join(gone)}")
    if not chosen:
        return
    if not args.yes:
        for each in there:
            say(f"{each['uuid']}: trial {each['trialId']}, step {each['stepsCompleted']}")
            for loss in each["losses"]:
                say(f"  {loss}", "yellow")
        size = quantities.size(sum(int(each["sizeBytes"]) for each in there))
        output.confirm(
            f"Delete {counted(len(chosen), 'checkpoint')} ({size})? This cannot be undone.",
            "Nothing was deleted.",
        )
    client.call("DELETE", "/api/v1/checkpoints", {"checkpointUuids": chosen})
    done(f"Deletion of checkpoints {', '.join(chosen)} is in progress")


def _remove_files(client: Client, args: argparse.Namespace) -> None:
    chosen = _uuids(args)
    if args.glob and not args.yes:
        globs = " or ".join(map(repr, args.glob))
        question = f"Remove the files that match {globs} from {counted(len(chosen), 'checkpoint')}?"
        output.confirm(f"{question} This cannot be undone.", "Nothing was removed.")
    answer = client.post("/api/v1/checkpoints/rm", {"checkpointUuids": chosen, "checkpointGlobs": args.glob})
    if args.glob:
        done(f"Removed {counted(int(answer['removedFiles']), 'file')} from {', '.join(chosen)}")
    else:
        done(
            f"Refreshed the file list of {', '.join(chosen)}; to delete whole checkpoints, use `checkpoint delete`"
        )


def add_gc_policy(settings: Any) -> None:
    """`experiment set gc-policy`."""
    parser = settings.add_parser(
        "gc-policy", help="set how many checkpoints are kept; the others are deleted"
    )
    parser.add_argument("experiment_id", metavar="ID", type=int)
    for name in ("experiment-best", "trial-best", "trial-latest"):
        parser.add_argument(f"--save-{name}", type=count, required=True, metavar="N")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    parser.set_defaults(run=_set_policy, action="set the policy")


_TO_GO = [
    Column("Trial ID", lambda row: row["TrialID"]),
    Column("# of Batches", lambda row: row["StepsCompleted"]),
    Column("State", lambda row: row["State"]),
    Column(
        "Validation Metric",
        lambda row: next(iter(row["ValidationMetrics"].values()), None),
    ),
    Column("UUID", lambda row: row["UUID"]),
    Column("Size", lambda row: row["Size"], quantities.size),
]


def _set_policy(client: Client, args: argparse.Namespace) -> None:
    counts = [args.save_experiment_best, args.save_trial_best, args.save_trial_latest]
    names = ["save_experiment_best", "save_trial_best", "save_trial_latest"]
    if not args.yes:
        preview = client.get(f"/experiments/{args.experiment_id}/preview_gc", list(zip(names, counts)))  # noqa: B905
        going = preview["checkpoints"]
        if going:
            say("These checkpoints will be deleted:")
            print(output.table([c.heading for c in _TO_GO], [_row(row) for row in going]))
        question = (
            f"This permanently deletes {len(going)} checkpoints; {preview['kept']} will be kept. Continue?"
        )
        output.confirm(question, "Nothing was changed.")
    wanted = dict(zip(["saveExperimentBest", "saveTrialBest", "saveTrialLatest"], counts))  # noqa: B905
    client.call("PATCH", f"/api/v1/experiments/{args.experiment_id}", {"checkpointStorage": wanted})
    done(f"Set checkpoint gc policy of experiment {args.experiment_id}")


def _row(row: Json) -> List[Any]:
    return [c.short(c.value(row)) if c.short else c.value(row) for c in _TO_GO]
