"""Searches of runs as Determined's console writes them: a tree of conditions, and an order. A run is a trial.

The forms are those of `POST /api/v1/runs` in its public API: `filter` is JSON, {"filterGroup": {"kind": "group",
"conjunction": "and", "children": [...]}, "showArchived": false}, whose leaves are {"kind": "field", "columnName",
"location", "type", "operator", "value"}; `sort` is `id=desc,hp.lr=asc`. Columns are a run's own or its experiment's;
`hp.NAME`, `metadata.NAME` and `GROUP.METRIC.min|max|mean|last` are what it was given and what it reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import and_, or_
from typing import Annotated, Any, Literal

from django.db.models import (
    BooleanField,
    Case,
    CharField,
    Expression,
    F,
    FloatField,
    Func,
    OrderBy,
    Q,
    QuerySet,
    TextField,
    Value,
    When,
)
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, Coalesce, Concat, Extract, Now, Round
from django.db.models.lookups import Exact
from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_naive, make_aware
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic.alias_generators import to_camel

from accounts.refusals import Refusal
from experiments import phases
from experiments.models import Trial
from metrics.values import SUMMARY_GROUPS

Kind = Literal["text", "number", "date", "bool", "state"]

MOST_CONDITIONS = 200
_METRIC = re.compile(r"(?P<group>[^.]+)\.(?P<name>.+)\.(?P<figure>min|max|mean|last)")
_COMPARED = {"=": "exact", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_KINDS: dict[str, Kind] = {
    "COLUMN_TYPE_TEXT": "text", "COLUMN_TYPE_NUMBER": "number", "COLUMN_TYPE_DATE": "date",
}  # fmt: skip
_HPARAMS = {"LOCATION_TYPE_HYPERPARAMETERS", "LOCATION_TYPE_RUN_HYPERPARAMETERS"}
_METRICS = {"LOCATION_TYPE_VALIDATIONS", "LOCATION_TYPE_TRAINING", "LOCATION_TYPE_CUSTOM_METRIC"}
_EXPERIMENT = "LOCATION_TYPE_EXPERIMENT"


class _Node(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)


class Condition(_Node):
    """A leaf of the tree."""

    kind: Literal["field"]
    column_name: str
    operator: Literal["=", "!=", "<", "<=", ">", ">=", "contains", "notContains", "isEmpty", "notEmpty"]
    value: JsonValue = None
    location: str | None = None
    type: str | None = None


class Group(_Node):
    kind: Literal["group"]
    conjunction: Literal["and", "or"]
    children: list[Annotated[Condition | Group, Field(discriminator="kind")]] = []


class RunFilter(_Node):
    """Which runs are meant; those of archived experiments only where that is said."""

    filter_group: Annotated[Condition | Group, Field(discriminator="kind")]
    show_archived: bool = False

    @classmethod
    def read(cls, text: str) -> RunFilter:
        """Raises Refusal, which names the place and what is allowed."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            where = ".".join(map(str, fault["loc"])) or "the text"
            raise Refusal(f"filter: {where}: {fault['msg']}.") from None

    def of(self, rows: QuerySet[Trial]) -> QuerySet[Trial]:
        """The rows of `shown.trials.with_numbers` that fit. Raises Refusal."""
        reader = _Reader()
        found = reader.meant(self.filter_group)
        rows = rows.alias(**reader.aliases).filter(found)
        return rows if self.show_archived else rows.filter(experiment__archived=False)


@dataclass(frozen=True)
class _Column:
    kind: Kind
    expression: Callable[[], Expression | F]


def _json(field: str, path: Sequence[str], *, text: bool = False) -> Expression:
    """What is at the path of a JSON field: as JSON, or as text."""
    *above, last = path
    inner: Any = field
    for key in above:
        inner = KeyTransform(key, inner)
    return KeyTextTransform(last, inner) if text else KeyTransform(last, inner)


def _number_at(field: str, path: Sequence[str]) -> Expression:
    """The number at the path; null where there is something else."""
    value = _json(field, path)
    is_number = Exact(Func(value, function="jsonb_typeof", output_field=TextField()), Value("number"))
    return Case(When(is_number, then=Cast(value, FloatField())), output_field=FloatField())


def _field(name: str) -> Callable[[], F]:
    return lambda: F(name)


def _seconds(end: str, begin: str) -> Expression:
    return Extract(Coalesce(F(end), Now()) - F(begin), "epoch", output_field=FloatField())


def _searcher(key: str) -> Expression:
    return _json("experiment__config", ["searcher", key], text=True)


def _truth(condition: Q) -> Expression:
    return Case(When(condition, then=Value(True)), default=Value(False), output_field=BooleanField())


_SEARCHER = "experiment__config__searcher__name"
_IS_SEARCH = Q(**{f"{_SEARCHER}__isnull": False}) & ~Q(**{_SEARCHER: "single"})
COLUMNS = {
    "id": _Column("number", _field("pk")),
    "experimentName": _Column("text", _field("experiment__name")),
    "experimentDescription": _Column("text", _field("experiment__description")),
    "tags": _Column("text", lambda: Cast("experiment__labels", TextField())),
    "searcherType": _Column("text", lambda: _searcher("name")),
    "searcherMetric": _Column("text", lambda: _searcher("metric")),
    "startTime": _Column("date", _field("started_at")),
    "endTime": _Column("date", _field("ended_at")),
    "duration": _Column("number", lambda: _seconds("ended_at", "started_at")),
    "state": _Column("state", _field("state")),
    # in percent, as the console asks
    "experimentProgress": _Column("number", lambda: Round(Coalesce(F("experiment__progress"), 0.0) * 100)),
    "user": _Column("number", _field("experiment__owner_id")),
    "forkedFrom": _Column("number", _field("experiment__parent_id")),
    "resourcePool": _Column("text", _field("experiment__job__pool__name")),
    "projectId": _Column("number", _field("experiment__project_id")),
    "checkpointSize": _Column("number", _field("checkpoint_bytes")),
    "checkpointCount": _Column("number", _field("checkpoint_count")),
    "searcherMetricsVal": _Column("number", _field("searcher_metric")),
    "externalExperimentId": _Column("text", _field("experiment__external_id")),
    "externalRunId": _Column("text", _field("external_id")),
    "experimentId": _Column("number", _field("experiment_id")),
    "localId": _Column(
        "text", lambda: Concat(F("experiment__project__key"), Value("-"), Cast("pk", CharField()))
    ),
    "isExpMultitrial": _Column("bool", lambda: _truth(_IS_SEARCH)),
    "archived": _Column("bool", _field("experiment__archived")),
    "parentArchived": _Column(
        "bool",
        lambda: _truth(
            Q(experiment__project__archived=True) | Q(experiment__project__workspace__archived=True)
        ),
    ),
}
#: what a condition on the experiment calls otherwise than one on the run, or means by the same name
OF_EXPERIMENT = {
    **COLUMNS,
    "id": COLUMNS["experimentId"],
    "name": COLUMNS["experimentName"],
    "description": COLUMNS["experimentDescription"],
    "startTime": _Column("date", _field("experiment__started_at")),
    "endTime": _Column("date", _field("experiment__ended_at")),
    "duration": _Column("number", lambda: _seconds("experiment__ended_at", "experiment__started_at")),
    "progress": COLUMNS["experimentProgress"],
    "externalTrialId": COLUMNS["externalRunId"],
}
_SORTED = {**COLUMNS, "user": _Column("text", _field("experiment__owner__username"))}


class _Reader:
    """Turns a tree into a Q over expressions that it names on the way."""

    def __init__(self) -> None:
        self.aliases: dict[str, Any] = {}
        self._conditions = 0

    def meant(self, node: Condition | Group) -> Q:
        if isinstance(node, Group):
            found = [self.meant(child) for child in node.children]
            return reduce(and_ if node.conjunction == "and" else or_, found) if found else Q()
        self._conditions += 1
        if self._conditions > MOST_CONDITIONS:
            raise Refusal(f"filter: more than {MOST_CONDITIONS} conditions; ask for less at once.")
        if node.value is None and node.operator not in {"isEmpty", "notEmpty"}:
            return Q()  # a condition that is still being written in the console
        location = node.location or _EXPERIMENT
        if location in _HPARAMS:
            return self._of_json(node, "hparams", node.column_name.removeprefix("hp.").split("."))
        if location == "LOCATION_TYPE_RUN_METADATA":
            return self._of_json(node, "metadata", node.column_name.removeprefix("metadata.").split("."))
        if location in _METRICS:
            return _compared(node, self._named(_figure(node.column_name)), "number")
        columns = OF_EXPERIMENT if location == _EXPERIMENT else COLUMNS
        column = columns.get(node.column_name)
        if column is None:
            raise Refusal(f"filter: column {node.column_name!r} is unknown. Allowed: {', '.join(columns)}.")
        if column.kind == "state":
            return _state(node)
        return _compared(node, self._named(column.expression()), column.kind)

    def _named(self, expression: Any) -> str:
        name = f"asked_{len(self.aliases)}"
        self.aliases[name] = expression
        return name

    def _of_json(self, node: Condition, field: str, path: Sequence[str]) -> Q:
        if _kind_of(node) == "number":
            return _compared(node, self._named(_number_at(field, path)), "number")
        return _compared(node, self._named(_json(field, path, text=True)), "text")


def _kind_of(node: Condition) -> Kind:
    """What the condition says that it compares; else what its value is."""
    if known := _KINDS.get(node.type or ""):
        return known
    if isinstance(node.value, bool):
        return "bool"
    return "number" if isinstance(node.value, int | float) else "text"


def _figure(column: str) -> Expression:
    """`training.loss.min` of what a run reported, as a number; the mean is of all reports."""
    found = _METRIC.fullmatch(column)
    if found is None:
        raise Refusal(f"{column!r} is not a metric. Allowed: GROUP.METRIC.min, max, mean or last.")
    path = [SUMMARY_GROUPS.get(found["group"], found["group"]), found["name"]]
    if found["figure"] != "mean":
        return _number_at("summary_metrics", [*path, found["figure"]])
    count = Func(_number_at("summary_metrics", [*path, "count"]), Value(0.0), function="NULLIF")
    mean: Expression = _number_at("summary_metrics", [*path, "sum"]) / count
    return mean


def _state(node: Condition) -> Q:
    words = phases.where(str(node.value).removeprefix("STATE_"))
    if node.operator not in {"=", "!="}:
        raise Refusal(f"filter: state {node.operator} is not possible. Allowed: =, !=.")
    return words if node.operator == "=" else ~words


def _compared(node: Condition, name: str, kind: Kind) -> Q:
    if node.operator in {"isEmpty", "notEmpty"}:
        nothing = Q(**{f"{name}__isnull": True})
        if kind == "text":
            nothing |= Q(**{f"{name}__in": ["", "[]"]})
        return nothing if node.operator == "isEmpty" else ~nothing
    if node.operator in {"contains", "notContains"}:
        contained = Q(**{f"{name}__icontains": str(node.value)})
        return contained if node.operator == "contains" else ~contained
    value = _value(node, kind)
    if node.operator == "!=":
        return Q(**{f"{name}__isnull": False}) & ~Q(**{name: value})
    return Q(**{f"{name}__{_COMPARED[node.operator]}": value})


def _value(node: Condition, kind: Kind) -> Any:
    value = node.value
    found: Any = None
    if kind == "number":
        found = _number(value)
    elif kind == "date" and isinstance(value, str):
        found = _moment(value)
    elif kind == "bool":
        found = value if isinstance(value, bool) else None
    elif kind == "text":
        found = json.dumps(value) if isinstance(value, bool) else str(value)
    if found is None:
        raise Refusal(f"filter: {node.column_name}: Found {value!r}; allowed: a {kind}.")
    return found


def _number(value: Any) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None


def _moment(value: str) -> datetime | None:
    try:
        found = parse_datetime(value if "T" in value else f"{value}T00:00:00")
    except ValueError:
        return None
    return make_aware(found, UTC) if found is not None and is_naive(found) else found


def in_order(rows: QuerySet[Trial], sort: str) -> QuerySet[Trial]:
    """The rows of `shown.trials.with_numbers` in this order, ties by id; what has no value is last. Raises Refusal."""
    parts = [_order(part) for part in sort.split(",")] if sort else []
    return rows.order_by(*parts, "pk")


def _order(part: str) -> OrderBy:
    name, _, direction = part.partition("=")
    if direction not in {"asc", "desc"}:
        raise Refusal(f"sort: Found {part!r}; allowed: COLUMN=asc or COLUMN=desc, several joined by commas.")
    group, _, rest = name.partition(".")
    if group in {"hp", "metadata"} and rest:
        expression: Any = _json("hparams" if group == "hp" else "metadata", rest.split("."))
    elif rest:
        expression = _figure(name)
    elif name in _SORTED:
        expression = _SORTED[name].expression()
    else:
        raise Refusal(
            f"sort: column {name!r} is unknown. Allowed: {', '.join(_SORTED)}, hp.NAME, metadata.NAME."
        )
    return OrderBy(expression, descending=direction == "desc", nulls_last=True)
