"""The figures for Prometheus as families of metrics (docs/monitoring.md). Names and units follow its conventions: base
units, times as epoch seconds (an age is `time() - x` in a query), `_total` for what only grows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from django.conf import settings
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from dispatch.keeping import figures
from dispatch.keeping.figures import Figures, PoolFigures
from shown import goodput
from shown.hosts import spares

#: (name, field of PoolFigures, help); None in the field leaves the sample out
_OF_POOL = (
    ("trainmaster_queue_wanted_slots", "wanted_slots", "Slots that waiting tasks ask for."),
    ("trainmaster_slots", "slots", "Slots of hosts that were not removed."),
    (
        "trainmaster_slots_usable",
        "usable_slots",
        "Slots that work may be placed on: enabled, on hosts that are ready.",
    ),
    ("trainmaster_slots_used", "used_slots", "Slots that are held by work."),
    ("trainmaster_slots_quarantined", "quarantined_slots", "Slots that are out of use because of a fault."),
    (
        "trainmaster_hosts_burn_in_findings",
        "burn_in_findings",
        "Hosts whose last burn-in found something slow or wrong.",
    ),
    ("trainmaster_spare_hosts", "spare_hosts", "Hosts that the pool keeps for work whose host fails."),
    ("trainmaster_pass_duration_seconds", "pass_seconds", "How long the last scheduling pass took."),
    ("trainmaster_pass_timestamp_seconds", "passed_at", "When the last scheduling pass was made."),
    ("trainmaster_pool_changes_pending", "changes", "Changes that no pass has seen yet."),
    ("trainmaster_runs", "runs", "Gang members that run on hosts."),
    ("trainmaster_heartbeat_newest_timestamp_seconds", "newest_heartbeat", "Newest heartbeat of a run."),
    (
        "trainmaster_heartbeat_oldest_timestamp_seconds",
        "oldest_heartbeat",
        "Last heartbeat of the run that was heard of longest ago.",
    ),
    (
        "trainmaster_runs_unshipped_bytes",
        "unshipped_bytes",
        "What runs have written and the server has not stored, by their last heartbeat.",
    ),
    (
        "trainmaster_runs_stored_bytes",
        "shipped_bytes",
        "What the server has stored of the runs that run now.",
    ),
)
#: (name, field of Figures, help)
_OF_DATABASE = (
    ("trainmaster_database_size_bytes", "database_bytes", "The database, on disk."),
    ("trainmaster_database_connections", "connections", "Connections to the database."),
    ("trainmaster_database_connections_max", "max_connections", "Connections that PostgreSQL allows."),
)


class ClusterCollector(Collector):
    """Reads PostgreSQL at each scrape, so every web process gives the same answer."""

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering this must not read the database."""
        return ()

    def collect(self) -> Iterable[Metric]:
        read = figures.read()
        yield InfoMetricFamily("trainmaster_build", "This server.", value={"version": settings.VERSION})
        yield _by_state("trainmaster_queue_tasks", "Tasks that wait or run.", read, lambda pool: pool.tasks)
        yield _by_state("trainmaster_hosts", "Hosts that were not removed.", read, lambda pool: pool.hosts)
        for name, field, text in _OF_POOL:
            family = GaugeMetricFamily(name, text, labels=["pool"])
            for pool in read.pools:
                if (value := getattr(pool, field)) is not None:
                    family.add_metric([pool.name], value)
            yield family
        yield _free_spares(read)
        yield GaugeMetricFamily(
            "trainmaster_workers", "Workers that took a message of their own lately.", value=read.workers
        )
        yield _slot_time(read)
        yield from _storage(read)


def _by_state(
    name: str, text: str, read: Figures, counts: Callable[[PoolFigures], Mapping[str, int]]
) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["pool", "state"])
    for pool in read.pools:
        for state, count in counts(pool).items():
            family.add_metric([pool.name, state], count)
    return family


def _free_spares(read: Figures) -> Metric:
    text = "Spare hosts where nothing runs that must end first, as the last scheduling pass found them."
    family = GaugeMetricFamily("trainmaster_spare_hosts_free", text, labels=["pool"])
    free = spares.free_by_pool() if any(pool.spare_hosts for pool in read.pools) else {}
    for pool in read.pools:
        family.add_metric([pool.name], free.get(pool.name, 0))
    return family


def _slot_time(read: Figures) -> Metric:
    family = CounterMetricFamily(
        "trainmaster_slot_seconds",
        "What the held slots of attempts that have ended went to; after_stop: why their steps were done again.",
        labels=["pool", "part", "after_stop"],
    )
    told = {(pool.name, part): 0.0 for pool in read.pools for part in goodput.PARTS}
    told |= {(pool, part): seconds for pool, part, seconds in read.slot_time}
    for (pool, part), seconds in told.items():
        kind, _, stop = part.partition(":")
        family.add_metric([pool, kind, stop], float(seconds))
    return family


def _storage(read: Figures) -> Iterable[Metric]:
    rows = CounterMetricFamily(
        "trainmaster_rows_inserted", "Rows inserted, as PostgreSQL's statistics count them.", labels=["table"]
    )
    sizes = GaugeMetricFamily(
        "trainmaster_table_size_bytes", "A table with its indexes, on disk.", labels=["table"]
    )
    for table in read.tables:
        rows.add_metric([table.name], table.inserted_rows)
        sizes.add_metric([table.name], table.size_bytes)
    yield rows
    yield sizes
    for name, field, text in _OF_DATABASE:
        yield GaugeMetricFamily(name, text, value=getattr(read, field))


registry = CollectorRegistry()
registry.register(ClusterCollector())
ProcessCollector(registry=registry)  # of the web process that answers
