"""The reference of the commands as Markdown, made from the Typer application."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import typer.main

from publisher.cli.main import command_line

COMPLETION = frozenset({"install_completion", "show_completion", "help"})
Command = Any
"""A command of click, or of typer where it has click inside: both have the same attributes."""


@functools.cache
def root() -> Command:
    """The whole application, which takes a tenth of a second to make."""
    return typer.main.get_command(command_line())


def commands(command: Command | None = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Command]]:
    """Every command that does something, by its words, in the order of `--help`."""
    command = command or root()
    children: dict[str, Command] | None = getattr(command, "commands", None)
    if children is None:
        yield path, command
        return
    for name in command.list_commands(None):
        yield from commands(children[name], (*path, name))


def options_of(command: Command) -> list[Command]:
    """Its options, without those that every command has."""
    return [each for each in command.params if each.param_type_name == "option" and each.name not in COMPLETION]


def arguments_of(command: Command) -> list[Command]:
    """Its arguments."""
    return [each for each in command.params if each.param_type_name == "argument"]


def value_of(option: Command) -> str:
    """The value of an option, as it is typed: its name, or the choices; empty of a flag."""
    if option.is_flag:
        return ""
    choices = [each for part in _parts(option.type_descriptor.annotation) for each in get_args(part)]
    return option.metavar or "|".join(map(str, choices)) or "VALUE"


def _parts(hint: Any) -> list[Any]:
    """The Literals of a type: itself, or those of a union."""
    return [each for each in (hint, *get_args(hint)) if get_origin(each) is Literal]


def spelling(option: Command) -> str:
    """An option with its value, as it is typed."""
    value = value_of(option)
    *others, last = (*option.opts, *option.secondary_opts)
    return ", ".join([*(f"`{word}`" for word in others), f"`{last} {value}`" if value else f"`{last}`"])


def render() -> str:
    """All commands: options that several have in the same words are explained once."""
    found = list(commands())
    families = {
        "Options of several commands": [command for path, command in found if path[0] != "report"],
        "Options of all views of report": [command for path, command in found if path[0] == "report"],
    }
    shared = {title: _shared(family) for title, family in families.items()}
    lines = ["## Options of every command", "", *_list(root().params), ""]
    for title, options in shared.items():
        lines += [f"## {title}", "", *_list(options), ""]
    for path, command in found:
        lines += _section(path, command, list(shared.values())[path[0] == "report"])
    return "\n".join(lines)


def _section(path: tuple[str, ...], command: Command, shared: list[Command]) -> list[str]:
    words = " ".join(path)
    needed = [each for each in options_of(command) if each.required and not each.prompt]
    parts = (*map(_argument, arguments_of(command)), *(f"{each.opts[0]} {each.metavar}" for each in needed))
    usage = " ".join((words, *parts))
    lines = [f"## {usage}", "", " ".join((command.help or "").split()), ""]
    known = {_entry(each) for each in shared}
    own = [each for each in options_of(command) if _entry(each) not in known]
    if own:
        lines += [*_list(own), ""]
    has = {_entry(each) for each in options_of(command)}
    if sentence := _shared_sentence(shared, has, is_view=path[0] == "report"):
        lines += [sentence, ""]
    return lines


def _shared(family: list[Command]) -> list[Command]:
    """Options that at least three of these commands have in the same words; of each flag, the most frequent words."""
    counts = Counter(_entry(option) for command in family for option in options_of(command))
    options: dict[str, Command] = {}
    for option in (option for command in family for option in options_of(command)):
        other = options.setdefault(option.opts[0], option)
        if counts[_entry(option)] > counts[_entry(other)]:
            options[option.opts[0]] = option
    return [option for option in options.values() if counts[_entry(option)] >= 3]


def _shared_sentence(shared: list[Command], entries: set[str], *, is_view: bool) -> str:
    has = [f"`{each.opts[0]}`" for each in shared if _entry(each) in entries]
    lacks = [f"`{each.opts[0]}`" for each in shared if _entry(each) not in entries]
    if is_view and len(has) > len(lacks):
        return f"Also: options of all views, without {', '.join(lacks)}." if lacks else "Also: options of all views."
    return f"Also: {', '.join(has)}." if has else ""


def _argument(argument: Command) -> str:
    word = (argument.metavar or argument.name.upper()).replace("[", "").replace("]", "")
    return word if argument.required else f"[{word}]"


def _list(options: list[Command]) -> list[str]:
    """A line for each option; filters that need no explanation are one line."""
    listed = [each for each in options if each.param_type_name == "option" and each.name not in COMPLETION]
    plain = [each for each in listed if _is_plain_filter(each)]
    lines = [_entry(each) for each in listed if each not in plain]
    return (
        [*lines, f"- {', '.join(f'`{each.opts[0]}`' for each in plain)}, each with a PATTERN: filters."]
        if plain
        else lines
    )


def _is_plain_filter(option: Command) -> bool:
    return option.metavar == "PATTERN" and re.fullmatch(r"Only \w+ (?:this|these) \w+", _text(option)[:-1]) is not None


def _entry(option: Command) -> str:
    return f"- {spelling(option)}: {_text(option)}"


def _text(option: Command) -> str:
    text = " ".join((option.help or "").split())
    return text if text.endswith(".") else f"{text}."
