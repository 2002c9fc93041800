"""`checkpoint delete`, `checkpoint rm` and `experiment set gc-policy`: what goes for ever is shown and asked first."""

from __future__ import annotations

import argparse
import uuid
from typing import Any, List

from trainmaster import quantities
from trainmaster.cli import output
from trainmaster.cli.arguments import count
from trainmaster.cli.errors import CliError
from trainmaster.cli.output import Column, done, say
from trainmaster.client import Client, Json
from trainmaster.quantities import counted


def full_uuid(text: str) -> str:
    """An argument's type: a checkpoint has no shorter name."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        problem = f"found {text!r}, allowed: the full UUID of a checkpoint, as printed by `checkpoint list`"
        raise argparse.ArgumentTypeError(problem) from None


def _full_uuids(text: str) -> List[str]:
    return [full_uuid(part) for part in text.split(",") if part]


def add(verbs: Any) -> None:
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
