"""Reading the configuration file: where it is looked for, and errors that name file, key and the values allowed."""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from publisher import add_ons
from publisher.config import (
    ADD_ON,
    BUILT_IN_TARGETS,
    AddOnTarget,
    Benchmark,
    BenchmarkRule,
    Config,
    Credentials,
    GridLog,
    MapRule,
    Selected,
    Site,
    Source,
    SpoolContext,
    Store,
    TargetSettings,
    When,
)
from publisher.config_reports import Adjustment, Charges, Factor, Node, Price
from publisher.config_serve import Serve
from publisher.errors import ConfigError, UsageError
from publisher.toml_text import mistake

ENVIRONMENT_KEY = "USAGE_PUBLISHER_CONFIG"
DEFAULT_PATH = Path("/etc/usage-publisher/publisher.toml")


def find(path: Path | None = None) -> Path:
    """The configuration file: the one given, else `USAGE_PUBLISHER_CONFIG`, else the one under /etc."""
    if path is not None:
        return path
    from_environment = os.environ.get(ENVIRONMENT_KEY)
    return Path(from_environment) if from_environment else DEFAULT_PATH


def load(path: Path | None = None) -> Config:
    """Read and check the configuration. Raises `ConfigError` naming file, key, what is wrong and what is allowed."""
    file = find(path)
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            "there is no configuration file",
            file=file,
            hint="Write one with `usage-publisher init`, or name it with --config",
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=file) from None
    try:
        table = tomllib.loads(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start})", file=file) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"is not TOML: {mistake(text.decode('utf-8'), error)}", file=file) from None
    return parse(table, file)


def parse(table: dict[str, Any], file: Path) -> Config:
    """The settings of a parsed file; `file` is what relative paths are relative to and what errors name."""
    try:
        config = Config.model_validate(table, context={"base": file.absolute().parent})
    except ValidationError as error:
        raise _explain(error, table, file) from None
    try:
        url = store_url(config.store.url, file.absolute().parent)
    except UsageError as error:
        raise ConfigError(error.message, file=file, key="store.url") from None
    return config.model_copy(update={"file": file.absolute(), "store": config.store.model_copy(update={"url": url})})


def store_url(url: str, folder: Path) -> str:
    """The URL of a store; a relative path is relative to a folder. Raises `UsageError` for another kind of URL."""
    if url.startswith("sqlite:///") and not url.startswith("sqlite:////"):
        return f"sqlite:///{(folder / url.removeprefix('sqlite:///')).absolute()}"
    if not url.startswith(("sqlite:////", "postgresql://", "postgresql+psycopg://")):
        raise UsageError("a store is sqlite:////path or postgresql://...")
    return url


def _explain(error: ValidationError, table: dict[str, Any], file: Path) -> ConfigError:
    found = error.errors()
    first = next((each for each in found if each["type"] == "extra_forbidden"), found[0])  # a required one, misspelt
    location = _without_tag(list(first["loc"]))
    key = ".".join(str(part) for part in location)
    kind = first["type"]
    if kind == "extra_forbidden":
        known = _known_keys(location[:-1], table)
        near = difflib.get_close_matches(str(location[-1]), known, n=1)
        message = "unknown key" + (f"; did you mean {near[0]!r}?" if near else "")
        return ConfigError(message, file=file, key=key, hint=f"Known here: {', '.join(known)}")
    if kind == "missing":
        return ConfigError("is missing", file=file, key=key, hint=_describe(location, table))
    if kind in {"union_tag_invalid", "union_tag_not_found"}:
        value = first.get("ctx", {}).get("tag")
        problem = f"is {value!r}" if value else "is missing"
        allowed = [*BUILT_IN_TARGETS, *add_ons.names(add_ons.TARGETS)]
        return ConfigError(f"{problem}; allowed: {', '.join(allowed)}", file=file, key=f"{key}.type")
    if kind == "tuple_type":
        return ConfigError(_no_list(first["input"], key), file=file, key=key)
    text = first["msg"].removeprefix("Value error, ")
    return ConfigError(text[0].lower() + text[1:], file=file, key=key, hint=_describe(location, table))


def _no_list(given: object, key: str) -> str:
    """What is wrong with one thing where a list is due."""
    if isinstance(given, dict):
        return f"is a list; one of tables is written as [[{key}]]"
    example = f'["{given}"]' if isinstance(given, str) and given.isprintable() else "[...]"
    return f"is a list; it is written as {example}, also where there is one thing in it"


def _without_tag(location: list[str | int]) -> list[str | int]:
    """The place of an error as it stands in the file: pydantic names the kind of target behind the target's name."""
    if len(location) > 2 and location[0] == "targets" and location[2] in {*BUILT_IN_TARGETS, ADD_ON}:
        del location[2]
    return location


_SECTIONS: dict[str, type[BaseModel]] = {
    "site": Site,
    "store": Store,
    "sources": Source,
    "spool": SpoolContext,
    "credentials": Credentials,
    "charges": Charges,
    "serve": Serve,
}
_RULES: dict[str, type[BaseModel]] = {
    "benchmark": Benchmark,
    "benchmarks": BenchmarkRule,
    "map": MapRule,
    "grid_log": GridLog,
    "nodes": Node,
    "prices": Price,
    "group_factors": Factor,
    "job_factors": Factor,
    "adjustments": Adjustment,
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
            | ["charges", str(part), int()]
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
    if kind in BUILT_IN_TARGETS:
        return BUILT_IN_TARGETS[kind]
    return AddOnTarget if kind in add_ons.names(add_ons.TARGETS) else TargetSettings


def _known_keys(location: list[str | int], table: dict[str, Any]) -> list[str]:
    return [name for name, field in _model_at(location, table).model_fields.items() if not field.exclude]


def _describe(location: list[str | int], table: dict[str, Any]) -> str:
    if not location:
        return ""
    field = _model_at(location[:-1], table).model_fields.get(str(location[-1]))
    return (field.description or "") if field else ""
