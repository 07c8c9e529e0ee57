"""Sources: the accounting files and databases of batch systems, one module a kind.

A kind of source is named by the `type` of a source in the configuration. Those of this program are listed here by where
they are to be imported from, so that only what a site uses is imported; installed packages add theirs by an entry point
in the group `usage_publisher.sources`. Either is called with the name of the source and its settings.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final

from publisher import plugins
from publisher.config import schema
from publisher.errors import ConfigError
from publisher.sources.base import Source
from publisher.sources.plugin import AddedSource

BUILT_IN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "arc": "publisher.sources.arc.source:ArcSource",
        "htcondor": "publisher.sources.htcondor.source:HTCondorSource",
        "slurm": "publisher.sources.slurm.source:SlurmSource",
        "dqs": "publisher.sources.dqs:DqsSource",
        "gridengine": "publisher.sources.gridengine.source:GridEngineSource",
        "lsf": "publisher.sources.lsf:LsfSource",
        "pbs": "publisher.sources.pbs.source:PbsProSource",
        "torque": "publisher.sources.pbs.source:TorqueSource",
    }
)


def make_source(name: str, settings: schema.SourceSettings) -> Source:
    """The source of the configuration's table `[sources.NAME]`.

    Raises `ConfigError` for an unknown type, naming those that are known, and for an add-on that cannot be loaded.
    """
    make: Callable[[str, schema.SourceSettings], Source] | None
    if settings.type in BUILT_IN:
        module, _, attribute = BUILT_IN[settings.type].partition(":")
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
    return make(name, settings) if settings.type in BUILT_IN else AddedSource(name, settings, make)


def known_kinds() -> list[str]:
    """Every type of source, in order."""
    return sorted({*BUILT_IN, *plugins.names(plugins.SOURCES)})
