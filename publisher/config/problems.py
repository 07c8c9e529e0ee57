"""What is wrong with a configuration: every problem with its line, its key, and what is allowed there."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from publisher import plugins
from publisher.config.schema import LONGEST_NAME, TARGET_KINDS, Config, Target, TargetSettings
from publisher.config.target_registry import settings_of_kind
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
    problems = [problem for detail in error.errors() for problem in _problems(detail, table)]
    misspelt = {problem.meant for problem in problems if problem.meant}
    shown = [problem for problem in problems if not (problem.is_missing and problem.place in misspelt)]
    errors = sorted((each.as_error(file, lines.find(each.place)) for each in shown), key=lambda one: one.line or 0)
    first, *errors[0].others = errors
    return first


def wrong_value(field: FieldInfo, value: object) -> str | None:
    """What is wrong with a value of a key alone; None: it may be right, as far as no other key decides."""
    annotated: Any = Annotated[field.annotation, *field.metadata]
    try:
        TypeAdapter(annotated).validate_python(value)
    except ValidationError as error:
        first_error = error.errors()[0]
        return _sentence(first_error, first_error.get("ctx", {}))
    return None


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
    path = list(found["loc"])
    kind, context = found["type"], found.get("ctx", {})
    if kind == "extra_forbidden":
        yield _unknown_key(path, table)
    elif isinstance(context.get("error"), WrongKeysError):
        for keys, message in context["error"].problems:
            yield _KeyProblem([*path, *keys], message)
    elif kind in {"union_tag_invalid", "union_tag_not_found"}:
        value = context.get("tag")
        allowed = [*TARGET_KINDS, *plugins.names(plugins.TARGETS)]
        problem = f"{value!r} is not a type of target" if value else "is missing"
        near = did_you_mean(value, allowed) if value else ""
        yield _KeyProblem([*path, "type"], f"{problem}; allowed: {', '.join(allowed)}{near}", is_missing=not value)
    elif kind == "tuple_type":
        yield _KeyProblem(path, _not_a_list(found["input"], ".".join(map(str, path))))
    else:
        message = _sentence(found, context)
        if kind in _NAMED_KINDS:
            message += did_you_mean(found["input"], _quoted(context["expected"]))
        hint = "" if "allowed: " in message else _describe(path, table)
        yield _KeyProblem(path, message, hint, is_missing=kind == "missing")


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


def _model_at(location: list[str | int], table: dict[str, Any]) -> type[BaseModel]:
    """The model of the table at a place; that of the whole file if the place is not that of a table."""
    hint: Any = Config
    entry: Any = table
    for part in location:
        entry = _entry_at(entry, part)
        hint = _hint_at(hint, part)
        if hint is Target:
            kind = entry.get("type") if isinstance(entry, dict) else None
            hint = settings_of_kind(kind) or TargetSettings
    return hint if _is_model(hint) else Config


def _entry_at(entry: object, part: str | int) -> object:
    if isinstance(entry, dict):
        return entry.get(part)
    return entry[part] if isinstance(entry, list) and isinstance(part, int) and part < len(entry) else None


def _hint_at(hint: Any, part: str | int) -> Any:
    """The type of a key of a table, or of an element of a list, by the type of the whole; without None."""
    if _is_model(hint):
        field = hint.model_fields.get(str(part))
        below = None if field is None else field.annotation
    else:
        below = next((argument for argument in reversed(get_args(hint)) if argument is not ...), None)
    models = [argument for argument in get_args(below) if _is_model(argument)]
    return models[0] if models and get_origin(below) in {Union, UnionType} else below


def _is_model(hint: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(hint, type) and issubclass(hint, BaseModel)


def _known_keys(location: list[str | int], table: dict[str, Any]) -> list[str]:
    return [name for name, field in _model_at(location, table).model_fields.items() if not field.exclude]


def _describe(location: list[str | int], table: dict[str, Any]) -> str:
    if not location:
        return ""
    field = _model_at(location[:-1], table).model_fields.get(str(location[-1]))
    return (field.description or "") if field else ""
