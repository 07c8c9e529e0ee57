"""The manual page is that of the commands, and man can read it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from publisher.cli.main import in_front
from tests.docs import commands, man
from tests.docs.test_commands import command_lines, parse


def test_the_manual_page_is_that_of_the_commands(root: Path, *, rewrite_golden: bool) -> None:
    page = root / man.FILE
    if rewrite_golden:
        page.write_text(man.render(), encoding="utf-8")
    assert page.read_text(encoding="utf-8") == man.render()


def test_every_command_and_option_is_in_it() -> None:
    page = man.render()
    for path, command in commands.commands():
        assert f".SS {' '.join(path)}".replace("-", "\\-") in page
        for option in commands.options_of(command):
            assert option.opts[0].replace("-", "\\-") in page


@pytest.mark.parametrize("line", [line for line, _ in man.EXAMPLES])
def test_its_examples_are_commands(line: str) -> None:
    (command,) = command_lines(f"    {line}")
    parse(in_front(shlex.split(command)[1:]))
    assert line.replace("-", "\\-") in man.render()


def test_groff_has_nothing_to_say_about_it(root: Path) -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not installed (Debian: groff-base)")
    done = subprocess.run(
        [groff, "-man", "-Tutf8", "-ww", "-z", str(root / man.FILE)], check=True, capture_output=True, text=True
    )
    assert done.stderr == ""
