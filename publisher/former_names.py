"""Names that gave way to better ones: each is accepted until the next major version, with a message of the new one.

A name that is renamed is one line in `FORMER`. Methods, parameters, and fields of descriptors that are renamed remain
beside the new ones, and call `warn`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import msgspec

from publisher.errors import ConfigError


class FormerNameWarning(FutureWarning):
    """A former name was used. Python shows it, also to people who use a program that somebody else wrote."""


class FormerNames(msgspec.Struct, frozen=True):
    """The present names by the former ones."""

    settings: Mapping[str, str] = {}
    """Of keys by `table.key`, with patterns: `targets.*.old` is now the key of the same table."""
    commands: Mapping[str, str] = {}
    """Of commands: `store old` is now `store new`."""
    options: Mapping[str, str] = {}
    """By command and option, as they are called now: `store new --old` is now `--new`."""
    library: Mapping[str, str] = {}
    """Of `publisher.__all__`."""
    groups: Mapping[str, str] = {}
    """Of the groups of entry points of add-ons."""


FORMER: Final = FormerNames()


def warn(what: str, now: str) -> None:
    """Report that a former name was used: `what` names it, and where."""
    text = f"{what} is called {now} now; the former name is accepted until the next major version"
    warnings.warn(text, FormerNameWarning, stacklevel=3)


def present_settings(
    table: Mapping[str, Any], former: Mapping[str, str], file: Path, place: str = ""
) -> dict[str, Any]:
    """The configuration of a file with the present names of its keys.

    Raises `ConfigError` for a key that is there by both names.
    """
    present: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{place}{key}"
        now = next((now for pattern, now in former.items() if fnmatchcase(name, pattern)), None)
        if now is not None:
            if now in table:
                why = f"is the former name of `{now}`, which is set too"
                raise ConfigError(why, file=file, key=name, hint="Remove it")
            warn(f"{file}: {name}", now)
        present[now or key] = _present_value(value, former, file, f"{place}{now or key}.")
    return present


def _present_value(value: Any, former: Mapping[str, str], file: Path, place: str) -> Any:
    if isinstance(value, dict):
        return present_settings(value, former, file, place)
    return [_present_value(item, former, file, place) for item in value] if isinstance(value, list) else value


def present_arguments(arguments: Sequence[str], former: FormerNames) -> list[str]:
    """A command line with the present names of its command and options."""
    words = list(arguments)
    places = list(_command_places(words))
    for count in (2, 1):
        called = " ".join(words[place] for place in places[:count])
        if now := former.commands.get(called):
            warn(called, now)
            for place, word in zip(places, now.split(" "), strict=False):
                words[place] = word
    commands = {words[place] for place in places[:1]} | {" ".join(words[place] for place in places[:2])}
    end = words.index("--") if "--" in words else len(words)
    for place, word in enumerate(words[:end]):
        option, equals, value = word.partition("=")
        now = next(
            (former.options[key] for command in commands if (key := f"{command} {option}") in former.options), None
        )
        if now:
            warn(option, now)
            words[place] = f"{now}{equals}{value}"
    return words


def _command_places(words: Sequence[str]) -> Iterator[int]:
    """Where the first words are that are not options of all commands."""
    skipped = False
    for place, word in enumerate(words):
        if word == "--":
            return
        if not word.startswith("-") and not skipped:
            yield place
        skipped = word == "--config"
