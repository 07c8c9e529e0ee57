"""What is wrong with a configuration: every problem with its line, its key, and what is allowed there."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from publisher import plugins
from publisher.config.operation import Log, Metrics, Notices, Serve
from publisher.config.reports import Adjustment, Charges, Factor, Node, Price, StatementRecipient, StatementSettings
from publisher.config.schema import (
    ADD_ON,
    LONGEST_NAME,
    TARGET_KINDS,
    AddOnSettings,
    BenchmarkRule,
    BenchmarkSettings,
    Config,
    Credentials,
    GridLog,
    MapRule,
    Selected,
    SiteSettings,
    SourceSettings,
    SpoolContext,
    StoreSettings,
    TargetSettings,
    When,
)
from publisher.config.toml_lines import TomlLines
from publisher.config.types import WrongKeysError
from publisher.errors import ConfigError
from publisher.text import did_you_mean

_SENTENCES: Final = {
    "bool_type": "must be true or false",
    "dict_type": "must be a table",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "greater_than": "must be greater than {gt:g}",
    "greater_than_equal": "must be {ge:g} or more",
    "int_type": "must be a whole number",
    "less_than_equal": "must be {le:g} or less",
    "literal_error": "must be {expected}",
    "missing": "is missing",
    "model_attributes_type": "must be a table",
    "model_type": "must be a table",
    "path_type": "must be a path in quotes",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must not be empty",
    "string_type": "must be text in quotes",
    "too_short": "must not be empty",
}
"""By the type of an error of pydantic; the others have pydantic's own text, or that of our types."""
_NAMED_KINDS: Final = frozenset({"literal_error"})
"""Errors of values for which the nearest allowed one is named."""


def explain(error: ValidationError, table: dict[str, Any], file: Path, text: str = "") -> ConfigError:
    """Every problem that pydantic found: the first, with the `others`, in the order of their lines.

    `text`: that of the file, for the numbers of lines.
    """
    lines = TomlLines(text)
    problems = [each for found in error.errors() for each in _problems(found, table)]
    misspelt = {each.meant for each in problems if each.meant}
    known = [each for each in problems if not (each.is_missing and each.place in misspelt)]
    errors = sorted((each.as_error(file, lines.find(each.place)) for each in known), key=lambda one: one.line or 0)
    first, *errors[0].others = errors
    return first


class _KeyProblem:
    """A problem of one key. `meant`: the place of the key that was probably meant by an unknown one."""

    def __init__(self, place: Sequence[str | int], message: str, hint: str = "", *, is_missing: bool = False) -> None:
        self.place = tuple(place)
        self.message = message
        self.hint = hint
        self.is_missing = is_missing
        self.meant: tuple[str | int, ...] = ()

    def as_error(self, file: Path, line: int | None) -> ConfigError:
        key = ".".join(_shown(part) for part in self.place)
        return ConfigError(self.message, file=file, line=line, key=key, hint=self.hint)


def _shown(part: str | int) -> str:
    """A part of a key for people: quotes if it is empty, the beginning if it is too long."""
    text = str(part) or '""'
    return text if len(text) <= LONGEST_NAME else f"{text[:20]}..."


def _problems(found: Any, table: dict[str, Any]) -> Iterator[_KeyProblem]:
    place = _without_tag(list(found["loc"]))
    kind, context = found["type"], found.get("ctx", {})
    if kind == "extra_forbidden":
        yield _unknown_key(place, table)
    elif isinstance(context.get("error"), WrongKeysError):
        for keys, message in context["error"].problems:
            yield _KeyProblem([*place, *keys], message)
    elif kind in {"union_tag_invalid", "union_tag_not_found"}:
        value = context.get("tag")
        allowed = [*TARGET_KINDS, *plugins.names(plugins.TARGETS)]
        problem = f"{value!r} is not a type of target" if value else "is missing"
        near = did_you_mean(value, allowed) if value else ""
        yield _KeyProblem([*place, "type"], f"{problem}; allowed: {', '.join(allowed)}{near}", is_missing=not value)
    elif kind == "tuple_type":
        yield _KeyProblem(place, _not_a_list(found["input"], ".".join(map(str, place))))
    else:
        message = _sentence(found, context)
        if kind in _NAMED_KINDS:
            message += did_you_mean(found["input"], _quoted(context["expected"]))
        hint = "" if "allowed: " in message else _describe(place, table)
        yield _KeyProblem(place, message, hint, is_missing=kind == "missing")


def _sentence(found: Any, context: dict[str, Any]) -> str:
    if found["type"] in _SENTENCES:
        return _SENTENCES[found["type"]].format_map(context)
    text = str(context["error"]) if "error" in context else str(found["msg"])
    return text[0].lower() + text[1:]


def _quoted(expected: str) -> list[str]:
    """The values in pydantic's text `'a', 'b' or 'c'`."""
    return expected.split("'")[1::2]


def _unknown_key(place: list[str | int], table: dict[str, Any]) -> _KeyProblem:
    known = _known_keys(place[:-1], table)
    problem = _KeyProblem(place, f"unknown key{did_you_mean(place[-1], known)}", f"Known here: {', '.join(known)}")
    if near := difflib.get_close_matches(str(place[-1]), known, n=1):
        problem.meant = (*place[:-1], near[0])
    return problem


def _not_a_list(given: object, key: str) -> str:
    """What to write in place of one value where a list is needed."""
    if isinstance(given, dict):
        return f"must be a list of tables: write [[{key}]]"
    example = f'["{given}"]' if isinstance(given, str) and given.isprintable() else "[...]"
    return f"must be a list: write {example}, also for one value"


def _without_tag(place: list[str | int]) -> list[str | int]:
    """The place of an error as it is in the file: pydantic puts the kind of a target after the target's name."""
    if len(place) > 2 and place[0] == "targets" and place[2] in {*TARGET_KINDS, ADD_ON}:
        del place[2]
    return place


_SECTIONS: dict[str, type[BaseModel]] = {
    "site": SiteSettings,
    "store": StoreSettings,
    "sources": SourceSettings,
    "spool": SpoolContext,
    "credentials": Credentials,
    "charges": Charges,
    "statements": StatementSettings,
    "serve": Serve,
    "metrics": Metrics,
    "notices": Notices,
    "log": Log,
}
_RULES: dict[str, type[BaseModel]] = {
    "benchmark": BenchmarkSettings,
    "benchmarks": BenchmarkRule,
    "map": MapRule,
    "grid_log": GridLog,
    "nodes": Node,
    "prices": Price,
    "group_factors": Factor,
    "job_factors": Factor,
    "adjustments": Adjustment,
    "recipients": StatementRecipient,
}


def _model_at(location: list[str | int], table: dict[str, Any]) -> type[BaseModel]:
    match location:
        case ["targets", str(name)]:
            return _model_of_target(table.get("targets", {}).get(name))
        case ["sources", _, "map", int(), "when"] | ["map", int(), "when"]:
            return When
        case (
            ["sources", _, str(part)]
            | ["sources", _, str(part), int()]
            | ["charges" | "statements", str(part), int()]
            | [str(part), int()]
        ) if part in _RULES:
            return _RULES[part]
        case ["targets", _, "credentials" | "select" as part]:
            return Credentials if part == "credentials" else Selected
        case [str(section), *rest] if section in _SECTIONS and len(rest) == (section in {"sources", "spool"}):
            return _SECTIONS[section]
        case _:
            return Config


def _model_of_target(entry: object) -> type[BaseModel]:
    kind = entry.get("type") if isinstance(entry, dict) else None
    if isinstance(kind, str) and kind in TARGET_KINDS:
        return TARGET_KINDS[kind].settings
    return AddOnSettings if kind in plugins.names(plugins.TARGETS) else TargetSettings


def _known_keys(location: list[str | int], table: dict[str, Any]) -> list[str]:
    return [name for name, field in _model_at(location, table).model_fields.items() if not field.exclude]


def _describe(location: list[str | int], table: dict[str, Any]) -> str:
    if not location:
        return ""
    field = _model_at(location[:-1], table).model_fields.get(str(location[-1]))
    return (field.description or "") if field else ""
