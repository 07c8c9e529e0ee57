"""The reference of the commands as Markdown, made from the Typer application."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

from publisher.cli.main import command_line

Command = Any
"""A command of click, or of typer where it has click inside: both have the same attributes."""


def root() -> Command:
    """The whole application."""
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
    completion = {"install_completion", "show_completion", "help"}
    return [each for each in command.params if each.param_type_name == "option" and each.name not in completion]


def arguments_of(command: Command) -> list[Command]:
    """Its arguments."""
    return [each for each in command.params if each.param_type_name == "argument"]


def spelling(option: Command) -> str:
    """An option with its value, as it is typed."""
    flags = ", ".join(f"`{word}`" for word in (*option.opts, *option.secondary_opts))
    return flags if option.is_flag else f"{flags} {option.metavar or 'VALUE'}"


def render() -> str:
    """All commands."""
    lines = ["## Options for all commands", "", *_options(root()), ""]
    for path, command in commands():
        words = " ".join(path)
        needed = [each for each in options_of(command) if each.required and not each.prompt]
        parts = (*map(_argument, arguments_of(command)), *(f"{each.opts[0]} {each.metavar}" for each in needed))
        usage = " ".join((words, *parts))
        lines += [f"## {words}", "", f"`usage-publisher {usage}`", "", " ".join((command.help or "").split()), ""]
        if options_of(command):
            lines += [*_options(command), ""]
    return "\n".join(lines)


def _argument(argument: Command) -> str:
    word = (argument.metavar or argument.name.upper()).replace("[", "").replace("]", "")
    return word if argument.required else f"[{word}]"


def _options(command: Command) -> list[str]:
    rows = [(spelling(each), " ".join((each.help or "").split())) for each in options_of(command)]
    return [
        "| option | meaning |",
        "|---|---|",
        *("| " + " | ".join(_cell(text) for text in row) + " |" for row in rows),
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
