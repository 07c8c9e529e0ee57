"""Only one module writes the states of deliveries and their counters."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import publisher
from publisher.store.schema import State, deliveries
from publisher.store.transitions import ASSUMED, StateChange, confirm, transition
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import ListSource, Site, make_jobs

PACKAGE = Path(publisher.__file__).parent
ALONE = PACKAGE / "store" / "transitions.py"
WRITING = {
    "insert", "update", "delete", "upsert", "add_up", "insert_missing", "insert_missing_rows", "insert_from_select",
}  # fmt: skip


def aliases(tree: ast.Module) -> dict[str, str]:
    """The names of the two tables in a module."""
    found = {"schema.deliveries": "deliveries", "schema.counters": "counters"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "publisher.store.schema":
            for each in node.names:
                if each.name in {"deliveries", "counters"}:
                    found[each.asname or each.name] = each.name
    return found


def written(tree: ast.Module) -> Iterator[tuple[str, str, ast.Call]]:
    """The table, how it is written, and the call."""
    names = aliases(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        how = ast.unparse(node.func).rpartition(".")[2]
        if how in WRITING:
            for argument in node.args:
                if ast.unparse(argument) in names:
                    yield names[ast.unparse(argument)], how, node


def columns_set(tree: ast.Module, table_call: ast.Call) -> set[str]:
    """The columns that the statement with this call sets; `?` for what is not spelled out."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "values"):
            continue
        if not any(each is table_call for each in ast.walk(node.func.value)):
            continue
        found |= {keyword.arg or "?" for keyword in node.keywords}
        for argument in node.args:
            keys = argument.keys if isinstance(argument, ast.Dict) else [None]
            found |= {key.value if isinstance(key, ast.Constant) else "?" for key in keys}
    return found


def values_named(tree: ast.Module) -> set[str]:
    """The keys of all dictionaries that a module spells out: what `.values(name)` may set."""
    keys = (key for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys)
    return {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def test_no_other_statement_writes_a_state_or_a_counter() -> None:
    updates = 0
    for file in sorted(PACKAGE.rglob("*.py")):
        if file == ALONE:
            continue
        source = file.read_text("utf-8")
        if not any(table in source for table in ("deliveries", "counters")):
            continue
        tree = ast.parse(source)
        for table, how, call in written(tree):
            place = f"{file}:{call.lineno}"
            assert table == "deliveries", f"{place}: writes a counter"
            assert how == "update", f"{place}: deliveries come and go in {ALONE.name} alone"
            columns = columns_set(tree, call)
            assert columns, f"{place}: what does it set?"
            assert "state" not in columns, f"{place}: writes a state"
            assert "?" not in columns or "state" not in values_named(tree), f"{place}: may write a state"
            updates += 1
    assert updates > 5, "or nothing was looked at"


def test_the_guard_sees_what_it_guards_against() -> None:
    head = "from publisher.store.schema import counters, deliveries as d\n"
    for statement in ("update(d).where(x).values(state=1)", "update(d).values({'state': 1})"):
        tree = ast.parse(head + statement)
        ((_, _, call),) = written(tree)
        assert "state" in columns_set(tree, call)
    assert [table for table, _, _ in written(ast.parse(head + "dialect.add_up(c, counters, row)"))] == ["counters"]


def test_what_leaves_the_accepted_loses_its_confirmation(tmp_path: Path) -> None:
    source = ListSource("ce1")
    source.add(*make_jobs(6))
    site = Site(tmp_path, [source], [RecordReceiver("neic")])
    site.collect()
    site.publish()
    with site.publisher.store.write() as connection:
        assert confirm(connection, 1, [1, 2, 3, 99], 5) == 3
        changed = StateChange(1, State.ACCEPTED, State.SUPERSEDED, 7, ASSUMED)
        assert transition(connection, changed, deliveries.c.run_id <= 2) == 2
        assert transition(connection, changed, deliveries.c.run_id <= 2) == 0
    site.assert_counters_right()
    assert site.publisher.status().targets["neic"].confirmed == 1
    assert len(site.in_state("neic", State.SUPERSEDED)) == 2
