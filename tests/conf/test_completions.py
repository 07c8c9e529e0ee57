"""The completions in conf/ are those of the commands, and a shell can use them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from typer._completion_shared import get_completion_script

FILES: Final = {"bash": "usage-publisher", "zsh": "_usage-publisher", "fish": "usage-publisher.fish"}
"""What the shells look for in their folders."""
AUTOLOADED: Final = """
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _usage_publisher_completion "$@"
fi
"""
"""zsh reads the file when the command is completed for the first time, and takes what it does as the answer."""


def script(shell: str) -> str:
    """What the file of a shell has to hold."""
    made = get_completion_script(prog_name="usage-publisher", complete_var="_USAGE_PUBLISHER_COMPLETE", shell=shell)
    return made + "\n" + (AUTOLOADED if shell == "zsh" else "")


@pytest.mark.parametrize("shell", FILES)
def test_the_file_is_that_of_the_commands(root: Path, shell: str, *, rewrite_golden: bool) -> None:
    file = root / "conf" / "completions" / FILES[shell]
    if rewrite_golden:
        file.write_text(script(shell), encoding="utf-8")
    assert file.read_text(encoding="utf-8") == script(shell)


def test_bash_completes_commands(root: Path, tmp_path: Path) -> None:
    program = tmp_path / "usage-publisher"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m publisher.cli "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    asked = """
        . "$1"
        COMP_WORDS=(usage-publisher re) COMP_CWORD=1
        _usage_publisher_completion usage-publisher
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "-c", asked, "bash", root / "conf" / "completions" / FILES["bash"]], cwd=root, check=True, text=True,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, capture_output=True,
    )  # fmt: skip
    assert done.stdout.split() == ["republish", "render", "records", "reconcile", "report"]
