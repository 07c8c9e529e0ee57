"""What `init` finds on this machine: sources of jobs, the host certificate, the time zone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Final

from publisher.config.sources import SOURCE_KINDS

GRID_SECURITY: Final = Path("/etc/grid-security")
_LOCALTIME: Final = Path("/etc/localtime")
_ZONES: Final = "/zoneinfo/"
_DEFAULTS: Final = {"SGE_CELL": "default"}
"""Of environment variables in `SourceKind.usual_paths`, as the batch systems have them."""


def sources(environment: Mapping[str, str]) -> dict[Path, str]:
    """The sources that exist on this machine, and their types."""
    return {place: kind for kind, place in _usual_places(environment) if os.access(place, os.R_OK)}


def _usual_places(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    for kind in SOURCE_KINDS.values():
        for path in kind.usual_paths:
            place = Template(path).safe_substitute(_DEFAULTS | dict(environment))
            if "$" not in place:  # else the batch system is not set up for this user
                yield kind.name, Path(place)
        if kind.program and (program := shutil.which(kind.program, path=environment.get("PATH"))):
            yield kind.name, Path(program)


def readable(place: Path) -> Path | None:
    """The place if it can be read, such as the host certificate."""
    return place if os.access(place, os.R_OK) else None


def time_zone(environment: Mapping[str, str], localtime: Path = _LOCALTIME) -> str:
    """The time zone of this machine by its name in the tz database; UTC if it is unknown."""
    if given := environment.get("TZ", "").removeprefix(":"):
        return given
    return str(localtime.resolve()).rpartition(_ZONES)[2] if _ZONES in str(localtime.resolve()) else "UTC"
