"""A database that is emptied between tests by DELETE.

TRUNCATE makes the files of every table and index anew, rows or not: with ours that is most of what a short test costs.
"""

from collections.abc import Sequence
from typing import Any

import psycopg
from django.contrib.contenttypes.management import create_contenttypes
from django.db.backends.postgresql.operations import DatabaseOperations
from django.db.models.signals import post_migrate

from embedded.postgres import Postgres

#: a table of more is truncated, for what DELETE leaves would be read by the next tests
LARGE_BYTES = 1024 * 1024
LARGE = (
    "SELECT relname FROM pg_class WHERE relname = ANY(%s) AND relkind = 'r' AND pg_relation_size(oid) > %s"
)


#: what the first start of a server writes beside its migrations
FIRST_ROWS = ("accounts_logintoken", "accounts_user", "events_presence", "events_lease", "events_event")


def as_migrated(cluster: Postgres) -> bool:
    """Leave only the rows of migrations in the cluster's database of a server; False: it has none."""
    try:
        with psycopg.connect(cluster.url()) as connection:
            connection.execute("SET LOCAL session_replication_role = replica")  # nothing refers to these rows
            for table in FIRST_ROWS:
                connection.execute(f"DELETE FROM {table}")
            for table in ("accounts_user", "events_event"):
                connection.execute(f"ALTER SEQUENCE {table}_id_seq RESTART")
    except psycopg.OperationalError:
        return False
    return True


def without_permissions() -> None:
    """From now on, emptying makes no rows of permissions and content types: they cost a statement for each model."""
    post_migrate.disconnect(dispatch_uid="django.contrib.auth.management.create_permissions")
    removed = post_migrate.disconnect(create_contenttypes)
    assert removed, "Django makes content types by another function now"


class Operations(DatabaseOperations):
    """Those of PostgreSQL, but for what `flush` does."""

    def sql_flush(self, style: Any, tables: Sequence[str], **_: Any) -> list[str]:
        """Statements of one transaction. As TRUNCATE does, they wait for who still writes, and take that away too."""
        if not tables:
            return []
        with self.connection.cursor() as cursor:
            cursor.execute(LARGE, [list(tables), LARGE_BYTES])
            large = [self.quote_name(name) for (name,) in cursor.fetchall()]
        names = [self.quote_name(name) for name in tables]
        return [
            f"LOCK TABLE {', '.join(names)} IN ACCESS EXCLUSIVE MODE",
            "SET LOCAL session_replication_role = replica",  # no trigger looks for rows that refer to deleted ones
            *(f"TRUNCATE {', '.join(large)} CASCADE" for _ in large[:1]),
            "; ".join(f"DELETE FROM {name}" for name in names),
        ]
