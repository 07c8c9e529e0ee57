"""Sources: the accounting files and databases of batch systems, one module a kind.

A kind of source is named by the `type` of a source in the configuration. Those of this program are listed here by where
they are to be imported from, so that only what a site uses is imported; installed packages add theirs by an entry point
in the group `usage_publisher.sources`. Either is called with the name of the source and its settings.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Final

from publisher import config
from publisher.add_ons import what_went_wrong
from publisher.errors import ConfigError
from publisher.sources.added import AddedSource
from publisher.sources.base import Source

ENTRY_POINT_GROUP: Final = "usage_publisher.sources"

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
    kinds = known_kinds()
    found = kinds.get(settings.type)
    if found is None:
        near = difflib.get_close_matches(settings.type, kinds, n=1)
        raise ConfigError(
            f"unknown type of source {settings.type!r}; known are {', '.join(sorted(kinds))}",
            key=f"sources.{name}.type",
            hint=f'Did you mean "{near[0]}"?' if near else "An add-on brings its type when it is installed beside this",
        )
    try:
        make: Callable[[str, config.Source], Source] = found.load()
    except Exception as error:
        raise ConfigError(
            f"type of source {settings.type!r} ({found.value}) cannot be loaded: {what_went_wrong(error)}",
            key=f"sources.{name}.type",
            hint="Reinstall the package that brings it",
        ) from error
    return make(name, settings) if settings.type in BUILT_IN else AddedSource(name, settings, make)


def known_kinds() -> dict[str, EntryPoint]:
    """Every type of source by name. A type of this program cannot be replaced by an add-on's of the same name."""
    kinds = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    kinds.update({name: EntryPoint(name, value, ENTRY_POINT_GROUP) for name, value in BUILT_IN.items()})
    return kinds
