"""No option is silently overruled by its repetition: one of one value that is given twice is an error."""

from __future__ import annotations

import pytest
import typer

from publisher.cli.command_group import takes_one
from tests.docs.commands import commands, root
from tests.publisher.cli.program import Program

OPTIONS = [
    pytest.param(command, option.opts[0], id=" ".join((*path, option.opts[0])))
    for path, command in [*commands(), ((), root())]
    for option in command.params
    if option.param_type_name == "option" and takes_one(option)
]


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_an_option_of_one_value_is_refused_the_second_time(command: typer.core.TyperCommand, option: str) -> None:
    with pytest.raises(typer.BadParameter, match=f"{option} takes one value and is given 2 times"):
        command.make_context("x", [option, "1", f"{option}=2"])


def test_it_is_a_usage_error_before_anything_is_done(fresh: Program) -> None:
    done = fresh("jobs", "--limit", "3", "--limit=4", "--json")
    assert done.code == 2
    assert done.object == {"error": "Invalid value: --limit takes one value and is given 2 times", "exit_code": 2}
    assert fresh("--config", fresh.config, "--config", fresh.config, "status").code == 2
    assert fresh("status", "--json", "--json", "--quiet").ok().object, "switches may be repeated"
