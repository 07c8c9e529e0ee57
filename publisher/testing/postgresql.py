"""A PostgreSQL server on which stores are made for tests."""

from __future__ import annotations

import itertools
import os
from typing import Any
from urllib.parse import urlsplit


class DatabaseServer:
    """The server of a URL (`postgresql://USER@HOST/postgres`), whose user may make databases and end sessions."""

    def __init__(self, url: str) -> None:
        import psycopg  # noqa: PLC0415 - of an extra

        self._connect = psycopg.connect
        self._url = url
        self._admin = self._connect(url, autocommit=True)
        self._numbers = itertools.count()

    def url(self, database: str) -> str:
        """The URL of a database, as in the configuration."""
        return urlsplit(self._url)._replace(path=f"/{database}").geturl()

    def new_database(self) -> str:
        """The name of a new database; it stays until somebody drops it."""
        name = f"publisher_test_{os.getpid()}_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name}")
        return name

    def cut_off(self, database: str) -> None:
        """End the sessions of a database, and refuse new ones until `let_in`."""
        self.run(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
        self.run("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s", database)

    def let_in(self, database: str) -> None:
        """Undo `cut_off`."""
        self.run(f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")

    def rows(self, database: str, query: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of a query; `%s` stands for a value."""
        with self._connect(self.url(database)) as session:
            return session.execute(query, values or None).fetchall()

    def run(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Execute a statement outside of the stores."""
        cursor = self._admin.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        """Close the connection."""
        self._admin.close()
