"""`pool create --slurm`: from a name of the user's ssh config to a cluster that takes jobs."""

from __future__ import annotations

import argparse
from typing import Any, List
from urllib.parse import quote

from trainmaster.cli.errors import FAILED, OK, CliError
from trainmaster.cli.host_adding import KeyDeclined, admitted, bring_key, hop_json
from trainmaster.cli.host_rows import show_doctor
from trainmaster.cli.output import Column, done, say
from trainmaster.cli.ssh_config import resolve
from trainmaster.client import Client, Json


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-key",
        action="store_true",
        help="with --slurm: do not install the server's key on the login node; it is already there",
    )
    parser.add_argument("--yes", "-y", action="store_true", help="with --slurm: answer yes to all questions")


def create(client: Client, args: argparse.Namespace, body: Json) -> int:
    """Create the pool and wait until its login node is admitted, or say why it is not."""
    login = str(body["slurm"].get("login") or "")
    if login:  # else the server has the sentence
        route = resolve(login)
        way = "".join(f" via {hop}" for hop in route.jumps)
        say(f"{login} is {route.target}{way}.")
        body["loginRoute"] = {**hop_json(route.target), "jumps": [hop_json(jump) for jump in route.jumps]}
        if not args.no_key:
            bring_key(client, route, args.yes)
    made = client.post("/api/v1/resource-pools", body)["resourcePool"]
    name = str(made["slurmCluster"]["loginHost"])
    try:
        host = admitted(client, client.host(name), args.yes)
    except KeyDeclined as error:
        client.call("DELETE", f"/api/v1/resource-pools/{quote(args.name, safe='')}")
        raise CliError(f"{error} Pool {args.name} was removed again.") from error
    print()
    show_doctor(host)
    if host["state"] != "ready":
        say(f"\nPool {args.name} cannot be used yet: {host.get('stateReason') or host['state']}", "red")
        say(
            f"Correct it with `trainmaster pool edit {args.name} --slurm SETTING=VALUE`, or once this is fixed, run "
            f"`trainmaster host doctor {name}`."
        )
        return FAILED
    found = client.get(f"/api/v1/resource-pools/{args.name}")["resourcePool"]
    cluster = found["slurmCluster"]
    done(
        f"Created pool {args.name}: {cluster['cluster']}, Slurm {cluster['version']}, {cluster['nodes']} nodes, "
        f"{found['slotsAvailable']} slots"
    )
    return OK


def _of(field: str) -> Any:
    return lambda row: (row.get("slurmCluster") or {}).get(field) or None


def _nodes(row: Json) -> Any:
    cluster = row.get("slurmCluster")
    return cluster and f"{cluster['usableNodes']} of {cluster['nodes']} take jobs"


def _counted(field: str) -> Any:
    def words(row: Json) -> Any:
        found = (row.get("slurmCluster") or {}).get(field) or {}
        return ", ".join(f"{number} {name}" for name, number in found.items()) or None

    return words


def _others(row: Json) -> Any:
    users = (row.get("slurmCluster") or {}).get("others") or []
    return (
        "; ".join(
            f"{user['user']}: {user['running']} running, {user['waiting']} waiting, {user['slots']} slots"
            for user in users
        )
        or None
    )


#: of a cluster in `pool describe`
COLUMNS: List[Column] = [
    Column("Login node", _of("loginHost")),
    Column("Slurm version", _of("version")),
    Column("Partition", _of("partition")),
    Column("Nodes", _nodes),
    Column("Node states", _counted("nodeStates")),
    Column("GPUs", _counted("gpus")),
    Column("Jobs of others", _others),
    Column("Cluster read", _of("readAt")),
    Column("Cluster error", _of("error")),
]
