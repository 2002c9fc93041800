"""`checkpoint`: list, look at, download, delete; and the downloads of `experiment` and `trial`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, List, Tuple
from urllib.parse import quote

from trainmaster import quantities
from trainmaster.cli import checkpoint_deletion, checkpoint_download, output
from trainmaster.cli.arguments import Adder
from trainmaster.cli.checkpoint_deletion import full_uuid
from trainmaster.cli.errors import CliError, UsageError
from trainmaster.cli.output import Column, done, local_time, state
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
    add_list_options(parser)
    parser.set_defaults(run=_list, action="list the checkpoints")
    parser = verbs.add_parser("describe", help="show its files, metadata, metrics, and why it is kept")
    parser.add_argument("uuid", metavar="UUID", type=full_uuid)
    output.add_format(parser)
    parser.set_defaults(run=_describe, action="describe the checkpoint")
    parser = verbs.add_parser("download", help="download its files to this machine")
    parser.add_argument("uuid", metavar="UUID", type=full_uuid)
    checkpoint_download.add_options(parser, "checkpoints/UUID")
    parser.set_defaults(run=_download, action="download the checkpoint")
    checkpoint_deletion.add(verbs)


def add_list_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", action="append", choices=_STATES, help="only in this state; repeatable")
    parser.add_argument("--sort", choices=list(_SORTS), default="time", help="sort order; metric: best first")
    parser.add_argument("--reverse", action="store_true", help="reverse the order")
    parser.add_argument("--limit", type=int, default=0, metavar="N")
    parser.add_argument("--offset", type=int, default=0, metavar="N")
    output.add_format(parser)


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
