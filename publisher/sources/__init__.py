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

from publisher import add_ons, config
from publisher.errors import ConfigError
from publisher.sources.added import AddedSource
from publisher.sources.base import Source

BUILT_IN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "arc": "publisher.sources.arc:ArcSource",
        "htcondor": "publisher.sources.htcondor:HTCondorSource",
        "slurm": "publisher.sources.slurm:SlurmSource",
        "dqs": "publisher.sources.dqs:DqsSource",
        "gridengine": "publisher.sources.gridengine:GridEngineSource",
        "lsf": "publisher.sources.lsf:LsfSource",
        "pbs": "publisher.sources.pbs:PbsProSource",
        "torque": "publisher.sources.torque:TorqueSource",
    }
)


def make_source(name: str, settings: config.Source) -> Source:
    """The source of the configuration's table `[sources.NAME]`.

    Raises `ConfigError` for an unknown type, naming those that are known, and for an add-on that cannot be loaded.
    """
    make: Callable[[str, config.Source], Source] | None
    if settings.type in BUILT_IN:
        module, _, attribute = BUILT_IN[settings.type].partition(":")
        make = getattr(import_module(module), attribute)
    else:
        make = add_ons.load(add_ons.SOURCES, settings.type, key=f"sources.{name}.type")
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
    return sorted({*BUILT_IN, *add_ons.names(add_ons.SOURCES)})
