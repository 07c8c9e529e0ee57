"""Reading the configuration file: where it is looked for, and errors that name file, key and the values allowed."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, ValidationError

from publisher import plugins
from publisher.config.operation import Serve
from publisher.config.reports import Adjustment, Charges, Factor, Node, Price, StatementRecipient, StatementSettings
from publisher.config.schema import (
    ADD_ON,
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
from publisher.errors import ConfigError, UsageError
from publisher.text import mistake

ENVIRONMENT_KEY = "USAGE_PUBLISHER_CONFIG"
DEFAULT_PATH = Path("/etc/usage-publisher/publisher.toml")
TOO_DEEP: Final = "is nested too deeply: tables and lists within tables and lists"


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
    except RecursionError:
        raise ConfigError(TOO_DEEP, file=file) from None
    return parse(table, file)


def parse(table: dict[str, Any], file: Path) -> Config:
    """The settings of a parsed file; `file` is what relative paths are relative to and what errors name."""
    try:
        config = Config.model_validate(table, context={"base": file.absolute().parent})
    except ValidationError as error:
        raise _explain(error, table, file) from None
    except RecursionError:
        raise ConfigError(TOO_DEEP, file=file) from None
    store = config.store.model_copy(update={"url": _url_at("store.url", config.store.url, file)})
    spool = {
        name: context.model_copy(update={"url": _url_at(f"spool.{name}.url", context.url, file)})
        for name, context in config.spool.items()
        if context.url
    }
    return config.model_copy(update={"file": file.absolute(), "store": store, "spool": config.spool | spool})


def _url_at(key: str, url: str, file: Path) -> str:
    try:
        return store_url(url, file.absolute().parent)
    except UsageError as error:
        raise ConfigError(error.message, file=file, key=key, hint=error.hint) from None


_POSTGRESQL: Final = ("postgresql://", "postgresql+psycopg://")
_PASSWORDS: Final = frozenset({"password", "sslpassword"})
_URL_HINT: Final = (
    "It is sqlite:////path (four slashes: absolute), sqlite:///path (relative to the configuration), or "
    "postgresql://USER@HOST/DATABASE"
)


def is_url(text: str) -> bool:
    """Whether a text is meant as a URL, and not as a file."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|sqlite:|postgres(ql)?(\+\w+)?:", text) is not None


def store_url(url: str, folder: Path) -> str:
    """The URL of a store; a relative path is relative to a folder.

    Raises `UsageError` for another kind of URL, one with a password, or with a port that is not a number. No message
    has the password.
    """
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        return f"sqlite:///{(folder / url.removeprefix('sqlite:///')).absolute()}"
    if url.startswith(_POSTGRESQL):
        _require_usable(url)
        return url
    scheme = url.partition(":")[0]
    if scheme in {"postgres", "postgresql"}:
        raise UsageError("the URL of a PostgreSQL store begins with postgresql://", hint=_URL_HINT)
    if scheme == "sqlite":
        raise UsageError("the URL of an SQLite store begins with sqlite:/// and has a path after it", hint=_URL_HINT)
    raise UsageError("is not the URL of a store: it begins with sqlite:/// or postgresql://", hint=_URL_HINT)


def _require_usable(url: str) -> None:
    try:
        parts = urlsplit(url)
        given = {name for name, value in parse_qsl(parts.query) if value}
        has_password = parts.password is not None or not given.isdisjoint(_PASSWORDS)
    except ValueError:
        raise UsageError("is not a URL: an address in brackets is not closed", hint=_URL_HINT) from None
    if has_password:
        raise UsageError(
            "the URL of a store has no password in it: everybody who sees the URL would have it",
            hint="Put it into ~/.pgpass, or the file that PGPASSFILE names (HOST:PORT:DATABASE:USER:PASSWORD, mode "
            "0600), or use a service file: postgresql:///?service=NAME with ~/.pg_service.conf",
        )
    try:
        _ = parts.port
    except ValueError:
        raise UsageError("the port of a URL is a number from 0 to 65535", hint=_URL_HINT) from None


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
        allowed = [*TARGET_KINDS, *plugins.names(plugins.TARGETS)]
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
    if len(location) > 2 and location[0] == "targets" and location[2] in {*TARGET_KINDS, ADD_ON}:
        del location[2]
    return location


_SECTIONS: dict[str, type[BaseModel]] = {
    "site": SiteSettings,
    "store": StoreSettings,
    "sources": SourceSettings,
    "spool": SpoolContext,
    "credentials": Credentials,
    "charges": Charges,
    "statements": StatementSettings,
    "serve": Serve,
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
