"""What installed packages add: kinds of source, formats and kinds of target, by entry points.

An add-on cannot replace what this program has under the same name. What it does wrong is its own trouble: an exception
that its protocol does not have is told as its defect, and ends nothing but what it was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from publisher.errors import ConfigError, PublisherError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

SOURCES: Final = "usage_publisher.sources"
FORMATS: Final = "usage_publisher.formats"
TARGETS: Final = "usage_publisher.targets"


def names(group: str) -> list[str]:
    """The names that installed packages add to a group, in order."""
    return sorted({point.name for point in _points(group)})


def load(group: str, name: str, key: str) -> Any:
    """What an add-on brings under a name; None where there is none. `key` is where the configuration asks for it.

    Raises `ConfigError` for one that is there and cannot be loaded.
    """
    found = next((point for point in _points(group) if point.name == name), None)
    if found is None:
        return None
    try:
        return found.load()
    except Exception as error:
        raise ConfigError(
            f"{name!r} ({found.value}) cannot be loaded: {what_went_wrong(error)}",
            key=key,
            hint="Reinstall the package that brings it",
        ) from error


ITS_DEFECT: Final = "This is a defect of the add-on: tell those who made it, and update it"


def what_went_wrong(error: Exception) -> str:
    """An exception for people: its type and text."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


@contextmanager
def blamed(kind: str, name: str, told_as: type[PublisherError]) -> Iterator[None]:
    """What an add-on is asked for: an exception of no error's kind becomes `told_as`, with its name, type and text.

    `kind` is what it brings (source, format, target) under the name.
    """
    try:
        yield
    except PublisherError:
        raise
    except Exception as error:
        raise told_as(f"the add-on {name!r} failed as a {kind}: {what_went_wrong(error)}", hint=ITS_DEFECT) from error


def _points(group: str) -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - loads what reads mail, for what few have

    return entry_points(group=group)
