"""What installed packages add: kinds of source, formats and kinds of target, by entry points.

An add-on cannot replace what this program has under the same name.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any, Final

from publisher.errors import ConfigError

SOURCES: Final = "usage_publisher.sources"
FORMATS: Final = "usage_publisher.formats"
TARGETS: Final = "usage_publisher.targets"


def names(group: str) -> list[str]:
    """The names that installed packages add to a group, in order."""
    return sorted({point.name for point in entry_points(group=group)})


def load(group: str, name: str, key: str) -> Any:
    """What an add-on brings under a name; None where there is none. `key` is where the configuration asks for it.

    Raises `ConfigError` for one that is there and cannot be loaded.
    """
    found = next(iter(entry_points(group=group, name=name)), None)
    if found is None:
        return None
    try:
        return found.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{name!r} ({found.value}) cannot be loaded: {error}",
            key=key,
            hint="Reinstall the package that brings it",
        ) from error
