"""Sources: the accounting files and databases of batch systems, one module a kind.

A kind of source is named by the `type` of a source in the configuration. Those of this program are listed in
`publisher.config.sources.SOURCE_KINDS`, by where they are to be imported from, so that only what a site uses is
imported; installed packages add theirs by an entry point in the group `usage_publisher.sources`. Either is called with
the name of the source and its settings.
"""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final

from publisher import plugins
from publisher.config import schema
from publisher.config.sources import SOURCE_KINDS
from publisher.errors import ConfigError
from publisher.sources.base import Source
from publisher.sources.logs.sniff import looks_like
from publisher.sources.plugin import AddedSource

_MOST_LOOKED_AT: Final = 50
"""Files of a folder that is to be recognised."""


def make_source(name: str, settings: schema.SourceSettings) -> Source:
    """The source of the configuration's table `[sources.NAME]`.

    Raises `ConfigError` for an unknown type, naming those that are known, and for an add-on that cannot be loaded.
    """
    make: Callable[[str, schema.SourceSettings], Source] | None
    if settings.type in SOURCE_KINDS:
        module, _, attribute = SOURCE_KINDS[settings.type].factory.partition(":")
        make = getattr(import_module(module), attribute)
    else:
        make = plugins.load(plugins.SOURCES, settings.type, key=f"sources.{name}.type")
    if make is None:
        kinds = known_kinds()
        near = difflib.get_close_matches(settings.type, kinds, n=1)
        raise ConfigError(
            f"unknown type of source {settings.type!r}; known are {', '.join(kinds)}",
            key=f"sources.{name}.type",
            hint=f'Did you mean "{near[0]}"?' if near else "An add-on brings its type when it is installed beside this",
        )
    return make(name, settings) if settings.type in SOURCE_KINDS else AddedSource(name, settings, make)


def known_kinds() -> list[str]:
    """Every type of source, in order."""
    return sorted({*SOURCE_KINDS, *plugins.names(plugins.SOURCES)})


def recognised(place: Path) -> str | None:
    """The type of source that a path is, by what is there; None where that cannot be seen.

    TORQUE and PBS Pro write alike: which of them it is has to be said.
    """
    kinds = SOURCE_KINDS.values()
    for kind in kinds:
        if any(place.name == name or (place / name).exists() for name in kind.databases):
            return kind.name
    if place.is_file() and os.access(place, os.X_OK):
        return next((kind.name for kind in kinds if kind.is_program), None)
    files = sorted(place.iterdir(), reverse=True) if place.is_dir() else [place]
    for file in files[:_MOST_LOOKED_AT]:
        with contextlib.suppress(OSError):
            if not file.is_file():
                continue
            with file.open("rb") as lines:
                found = looks_like([lines.readline(2**16) for _ in range(20)])
            if (known := next((kind.name for kind in kinds if found in kind.logs), None)) is not None:
                return known
    return None
