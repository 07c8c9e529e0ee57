"""The configuration file: where it is looked for, and how it is read."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from publisher.errors import ConfigError
from publisher.former_names import FORMER, FormerNames, present_settings
from publisher.text import mistake

if TYPE_CHECKING:
    from publisher.config.schema import Config

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
    """Read and check the configuration. Raises `ConfigError` with every problem: file, line, key, what is allowed."""
    file = find(path)
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            "there is no configuration file",
            file=file,
            hint="Write one with `usage-publisher init`, or name it with --config",
        ) from None
    except OSError as error:
        hint = "Let the program's user read the file, or name another with --config"
        raise ConfigError(f"cannot be read: {error.strerror}", file=file, hint=hint) from None
    try:
        text = content.decode("utf-8")
        table = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start})", file=file) from None
    except tomllib.TOMLDecodeError as error:
        line, what = mistake(text, error)
        raise ConfigError(f"is not TOML: {what}", file=file, line=line) from None
    except RecursionError:
        raise ConfigError(TOO_DEEP, file=file) from None
    return parse(table, file, text)


def parse(table: dict[str, Any], file: Path, text: str = "", former: FormerNames = FORMER) -> Config:
    """The settings of a parsed file. Relative paths are relative to `file`; errors name it.

    `text`: the text of the file; errors then have the numbers of its lines. Raises `ConfigError` with every problem.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - loaded when the first file is read, not to find it

    from publisher.config.schema import Config  # noqa: PLC0415

    try:
        table = present_settings(table, former.settings, file) if former.settings else table
        config = Config.model_validate(table, context={"base": file.absolute().parent})
    except ValidationError as error:
        from publisher.config.problems import explain  # noqa: PLC0415 - only where something is wrong

        raise explain(error, table, file, text) from None
    except RecursionError:
        raise ConfigError(TOO_DEEP, file=file) from None
    return config.model_copy(update={"file": file.absolute()})
