"""What was released stays: the file has the interface of the last release, and nothing of it is gone or another."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest
import typer.main
from pydantic import BaseModel

from tests.docs import commands, interface, reference


def test_nothing_of_the_last_release_is_gone_or_changed(*, rewrite_golden: bool) -> None:
    """The file is written again with each release: what was added since may still change, and what was there may not,
    nor its type or default. A name that must go is accepted further, with a message that has the new one."""
    now = interface.lines()
    if rewrite_golden:
        interface.FILE.write_text("\n".join(now) + "\n", encoding="utf-8")
    released = interface.FILE.read_text(encoding="utf-8").splitlines()
    present = {interface.name_of(line): line for line in now}
    assert {line: present.get(interface.name_of(line), "gone") for line in sorted({*released} - {*now})} == {}


def test_each_promise_has_lines() -> None:
    kinds = {line.partition(" ")[0] for line in interface.lines()}
    assert kinds == {"command", "setting", "exit", "json", "library", "add-on", "archive", "store", "metric", "page"}


class Before(BaseModel):
    pause: float = 60
    layout: Literal["dirq", "files"] = "dirq"


class After(BaseModel):
    pause: float = 30
    layout: Literal["dirq", "files", "days"] = "dirq"


class Fields(msgspec.Struct):
    read: int
    error: str | None = None


def test_settings_have_types_values_and_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    def lines(model: type[BaseModel]) -> set[str]:
        monkeypatch.setattr(reference, "TABLES", {"[x]": model})
        return set(interface._settings())

    values = {f'setting [x] layout value "{name}"' for name in ("dirq", "files")}
    layout = 'setting [x] layout: value, default "dirq"'
    assert lines(Before) == {layout, "setting [x] pause: number, default 60", *values}
    assert lines(Before) - lines(After) == {"setting [x] pause: number, default 60"}, "values may be added"


def test_options_have_types_and_defaults() -> None:
    def called(
        name: str,
        *,
        limit: int = typer.Option(100, min=1, max=9),
        form: Literal["a", "b"] = "a",
        vo: list[str] | None = None,
        yes: bool = False,
    ) -> None: ...

    app = typer.Typer()
    app.command()(called)
    command = typer.main.get_command(app)
    found = {
        each.name: interface._parameter_type(each)
        for each in (*commands.arguments_of(command), *commands.options_of(command))
    }
    assert found == {
        "name": ("text, required", []), "limit": ("number, at least 1, at most 9, default 100", []),
        "form": ('value, default "a"', ["a", "b"]), "vo": ("text, repeated", []), "yes": ("flag", []),
    }  # fmt: skip


def test_the_library_and_json_have_types_and_defaults() -> None:
    def called(target: str, since: int | None = None, *, dry: bool = False) -> Fields: ...

    assert [*interface._parameters(called)] == [
        "is called: Fields", "takes target: str", "takes since: int | None, default None",
        "takes dry: bool, default False, by name",
    ]  # fmt: skip
    assert [*interface._fields("Fields", Fields)] == ["Fields.read: int", "Fields.error: str | None, default None"]
    schema = {"properties": {"a": {"type": ["integer", "null"]}, "b": {"type": "array", "items": {}}}}
    assert [*interface._paths(schema)] == ["a: integer|null", "b: array"]
