"""Which tables a statement reads, if it is one SELECT that reads nothing but them.

The statement comes from a person who may read all runs, and nothing else of this host. DuckDB's own parser takes it
apart; what is not known to be harmless is refused. That the connection has no access to files does not suffice: it may
write to the files that it reads (`COPY ... TO`), and some functions take addresses of memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, Final

import duckdb

from publisher.errors import UsageError

_REFERENCES: Final = frozenset(
    {"BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EXPRESSION_LIST", "EMPTY", "PIVOT", "CTE", "EMPTY_FROM"}
)
"""What a FROM may contain. Others, such as SHOW_REF, read the catalogue."""
_TABLE_FUNCTIONS: Final = frozenset({"unnest", "range", "generate_series"})
_NOT_CALLED: Final = re.compile(
    r"getenv|getvariable|current_setting|set_config|query|query_table|nextval|currval|write_log|parse_duckdb_log_message"
    r"|read_\w*|\w*_scan\w*|sniff_\w*|glob|json_execute\w*|duckdb_\w*|pragma_\w*|pg_\w*|sleep\w*|http\w*|\w*secret\w*"
    r"|current_query|current_schemas?|current_database|in_search_path|txid_current|version|icu_\w*|\w*checkpoint"
)
"""Functions that tell something of this host or its settings, or do something."""
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)
_OF_DUCKDB: Final = re.compile(r"(duckdb|pg|sqlite|pragma|information)_.*", re.ASCII)
_NO_TEXT: Final = re.compile(r"[\ud800-\udfff\x00]")
_MOST_LETTERS: Final = 100_000


def tables_read(statement: str, tables: Collection[str]) -> set[str]:
    """The tables that a statement reads, of `tables`. Raises `UsageError` if it is not one SELECT of them alone."""
    if len(statement) > _MOST_LETTERS:
        raise UsageError(f"the statement has more than {_MOST_LETTERS:,} characters")
    parsed = _parsed(statement)
    names = {key.lower() for node in _nodes(parsed) for key in _named_queries(node)}
    for name in names:
        if not _NAME.fullmatch(name) or _OF_DUCKDB.fullmatch(name) or name in tables:
            raise _refused(f"{name!r} cannot be the name of a WITH query", "Choose another name")
    read = set()
    for node in _nodes(parsed):
        _require_harmless(node)
        if node.get("type") == "BASE_TABLE":
            name = str(node.get("table_name", "")).lower()
            schema = node.get("schema_name") or node.get("catalog_name")
            if schema and name in tables:
                raise _refused(f"the table {name} is named with {schema!r}", f"Write it without a schema: FROM {name}")
            if schema or node.get("at_clause") or name not in {*tables, *names}:
                raise _refused(f"there is no table {name!r}", f"The tables are {', '.join(sorted(tables))}")
            read.add(name)
    return read - names


def _parsed(statement: str) -> Any:
    if _NO_TEXT.search(statement):
        raise _refused("it is not valid text", "Write it in UTF-8")
    try:
        with duckdb.connect(":memory:") as parser:
            parser.execute("SET enable_external_access = false")
            kinds = [tree.type for tree in parser.extract_statements(statement)]
            if len(kinds) != 1 or kinds[0] != duckdb.StatementType.SELECT:
                raise _refused("this is not one SELECT statement", "Give one SELECT, without any other statement")
            row = parser.execute("SELECT json_serialize_sql($1)", [statement]).fetchone()
        tree: dict[str, Any] = json.loads(row[0]) if row else {"error": True}
    except duckdb.Error as error:
        raise _refused(_first_line(error), "See the documentation of DuckDB's SELECT") from None
    except RecursionError:
        raise _refused("it is nested too deeply", "Write it in WITH queries") from None
    if tree.get("error") or len(tree["statements"]) != 1:
        raise _refused(str(tree.get("error_message", "this is not one SELECT statement")), "Give one SELECT")
    return tree["statements"][0]


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """All objects of a parsed statement; without recursion, because statements may be nested deeply."""
    rest = [value]
    while rest:
        expression = rest.pop()
        if isinstance(expression, dict):
            yield expression
            rest += expression.values()
        elif isinstance(expression, list):
            rest += expression


def _named_queries(node: dict[str, Any]) -> list[str]:
    named = node.get("cte_map")
    return [str(entry["key"]) for entry in named["map"]] if isinstance(named, dict) else []


def _require_harmless(node: dict[str, Any]) -> None:
    """Raises `UsageError` for a part of a FROM, or a function, that is not known to be harmless."""
    kind = str(node.get("type", ""))
    if "sample" in node and "alias" in node and "class" not in node and kind not in _REFERENCES:
        raise _refused(f"{kind} is not possible here", "Select from the tables")
    name = str(node.get("function_name", "")).lower()
    if kind == "TABLE_FUNCTION":
        called = str(node.get("function", {}).get("function_name", "")).lower()
        if called not in _TABLE_FUNCTIONS:
            raise _refused(f"the function {called} cannot be selected from", "Select from the tables")
    elif name and (_NOT_CALLED.fullmatch(name) or node.get("schema") not in ("", "main") or node.get("catalog")):
        raise _refused(f"the function {name} cannot be called", "Omit it")
    elif str(node.get("cast_type", {}) or "").upper().find("POINTER") >= 0:
        raise _refused("addresses of memory are not values", "Omit the cast")


def _refused(problem: str, hint: str) -> UsageError:
    return UsageError(f"the statement was refused: {problem}", hint=hint)


def _first_line(error: duckdb.Error) -> str:
    return str(error).splitlines()[0]
