"""`experiment continue` and `experiment fork`: what has run goes on, or begins again as another."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import trainmaster.yamltext as yamltext
from trainmaster.cli.errors import OK, CliError, UsageError
from trainmaster.cli.output import done, say_notices
from trainmaster.cli.submission import Follow, add_fields, add_follow, config_text, created
from trainmaster.client import Client, Json
from trainmaster.overrides import BadOverride, apply_overrides


def add(verbs: Any, follow: Follow) -> None:
    parser = verbs.add_parser(
        "continue",
        help="continue an ended experiment from its latest checkpoints",
        description="Continue an ended experiment from the latest checkpoints of its trials; a trial without one "
        "starts over. You can change its config, except for the project, the kind of searcher and "
        "checkpoint_storage; the config of a random or grid search cannot change at all. To use another "
        "storage, fork it instead.",
    )
    _add_options(parser, "changes to its config")
    parser.set_defaults(
        run=lambda client, args: _continue(client, args, follow), action="continue the experiment"
    )
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
    parser.set_defaults(run=lambda client, args: _fork(client, args, follow), action="fork the experiment")


def _add_options(parser: argparse.ArgumentParser, file: str) -> None:
    parser.add_argument("experiment_id", type=int)
    parser.add_argument("--config-file", type=Path, metavar="FILE", help=f"YAML: {file}")
    add_fields(parser, "searcher.max_length.batches=2000")
    add_follow(parser)


def _continue(client: Client, args: argparse.Namespace, follow: Follow) -> int:
    given = args.config_file is not None
    changes = config_text(args.config_file, args.config) if given else _changed({}, args)
    answer = client.post(
        "/api/v1/experiments/continue", {"id": args.experiment_id, "overrideConfig": changes}
    )
    say_notices(answer)
    done(f"Continued experiment {args.experiment_id}")
    return follow(client, args.experiment_id, args) if args.follow else OK


def _fork(client: Client, args: argparse.Namespace, follow: Follow) -> int:
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
    return created(client, answer, args, follow)


def _changed(config: Json, args: argparse.Namespace) -> str:
    try:
        return yamltext.dump(apply_overrides(config, args.config))
    except BadOverride as error:
        raise UsageError(f"{error}.") from error
