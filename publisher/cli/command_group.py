"""Commands that refuse an option given twice, instead of ignoring its first value; and their help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

_WHOLE = 1000
"""Characters: more than any first sentence has."""
Function = TypeVar("Function", bound=Callable[..., Any])


class OneValueCommand(TyperCommand):
    """A command. Raises `typer.BadParameter` where an option that takes one value is given more than once."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _require_one_value(self, ctx, args)
        return super().parse_args(ctx, args)

    def get_short_help_str(self, limit: int = 0) -> str:  # noqa: ARG002 - lines are wrapped instead of cut
        """The first sentence of the help, whole."""
        return super().get_short_help_str(_WHOLE)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments without the types of Python, which say nothing to people."""
        for parameter in self.params:
            if parameter.param_type_name == "argument":
                setattr(parameter, "display_type_rich", lambda ctx: None)  # noqa: ARG005, B010 - typer's hook
        super().format_options(ctx, formatter)


class OneValueGroup(TyperGroup):
    """A group of commands whose own options are checked in the same way."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _require_one_value(self, ctx, args)
        return super().parse_args(ctx, args)

    def get_short_help_str(self, limit: int = 0) -> str:  # noqa: ARG002 - likewise
        """The first sentence of the help, whole."""
        return super().get_short_help_str(_WHOLE)


class CommandGroup(typer.Typer):
    """Commands under one name, all of them `OneValueCommand`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"cls": OneValueGroup, "rich_markup_mode": None, "no_args_is_help": True, **settings})

    def command(self, *args: Any, **settings: Any) -> Callable[[Function], Function]:
        return super().command(*args, cls=OneValueCommand, **settings)


def _require_one_value(command: TyperCommand | TyperGroup, ctx: Any, args: list[str]) -> None:
    _, _, given = command.make_parser(ctx).parse_args(args=list(args))
    times = Counter(option.opts[0] for option in given if option.param_type_name == "option" and takes_one(option))
    for name, number in times.items():
        if number > 1:
            raise typer.BadParameter(f"{name} takes one value and is given {number} times")


def takes_one(option: Any) -> bool:
    """Whether an option takes one value: not a switch, and not one that may be repeated."""
    return not (option.is_flag or option.multiple or option.count)
