"""Statements of SQLAlchemy, compiled once in a process and not once for each store that it opens: the page, `run
--every`, and the commands that copy stores open many."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Engine
from sqlalchemy.engine import Compiled
from sqlalchemy.util import LRUCache

_STATEMENTS: Final = 1_000


class CompiledStatements(LRUCache[Any, Compiled]):
    """The cache of many engines. SQLAlchemy's keys begin with the dialect object, of which each engine has its own;
    what is compiled depends on its class and on the version of the database only."""

    __slots__ = ()

    def get(self, key: Any, default: Any = None) -> Any:
        """The compiled statement, or the default."""
        return super().get(_key(key), default)

    def __setitem__(self, key: Any, value: Compiled) -> None:
        super().__setitem__(_key(key), value)


def _key(key: Any) -> Any:
    dialect, *rest = key
    return (type(dialect), dialect.server_version_info, *rest)


_compiled: Final = CompiledStatements(_STATEMENTS)


def share(engine: Engine) -> None:
    """Have an engine compile no statement that another one of this process compiled."""
    engine.update_execution_options(compiled_cache=_compiled)
