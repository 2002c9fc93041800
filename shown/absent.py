"""What the dialect has and this server does not: a sentence for each, instead of "there is nothing".

docs/determined.md lists the same for people, and tests/compat holds both against the published client.
"""

from __future__ import annotations

import re

_PAGES = "It belongs to the pages of Determined, which this server does not have."
_AGENTS = "It belongs to Determined's agents, which this server does not have; runs report to /runner/v1."
_KUBERNETES = (
    "This server does not run jobs in Kubernetes, so there are no namespaces and no quotas of theirs."
)
_ROLES = (
    "This server has no roles by workspace. Each user is a viewer, an editor or an admin: "
    "`trainmaster user edit NAME --role ROLE`."
)
_TASKS = "This server has no generic tasks. Run a command instead: `trainmaster command run`."

#: a pattern of the address behind /api/v1/, and what to say there
ABSENT: tuple[tuple[str, str], ...] = (
    (
        r"models?(/.*)?",
        "This server has no model registry. What a registry would say about a checkpoint goes into its metadata: "
        "Checkpoint.add_metadata in Python.",
    ),
    (
        r"config-policies/.*",
        "This server has no config policies. Put defaults into a template, and limits into the pool's rules.",
    ),
    (r"generic-tasks|tasks/[^/]+/(config|context_directory|pause|unpause)", _TASKS),
    (r"resource-pools/[^/]+/workspace-bindings", "Every workspace may use every pool of this server."),
    (r"(roles|permissions)(/.*)?|users/assignments", _ROLES),
    (
        r"k8s-resource-managers|namespace-bindings/.*"
        r"|workspaces/\d+/((list-)?namespace-bindings|(get-k8s|set)-resource-quotas?)",
        _KUBERNETES,
    ),
    (
        r"allocations/[^/]+(/(acceleratorData|proxy_address|ready|waiting|resources/.*|signals/pending_preemption))?"
        r"|tasks/[^/]+/acceleratorData",
        _AGENTS,
    ),
    (
        r"master/config",
        "The server's settings are environment variables that it reads when it starts, such as "
        "TRAINMASTER_LOG_LEVEL; set them there.",
    ),
    (r"master/telemetry", "This server sends no telemetry."),
    (
        r"experiments-search|projects/\d+/(columns|metadata/.*|experiments/metric-ranges)|user/projects/activity"
        r"|users/activity|workspaces/\d+/(un)?pin",
        _PAGES,
    ),
    (r"users", "Change one user at a time: PATCH /api/v1/users/ID."),
    (r"users/\d+/password", "Set the password with PATCH /api/v1/users/ID."),
)


def sentence(path: str) -> str | None:
    """What to say of an address that is not served, if the dialect has it."""
    prefix = "/api/v1/"
    asked = path.removeprefix(prefix)
    if asked == path:
        return None
    return next((said for pattern, said in ABSENT if re.fullmatch(pattern, asked)), None)
