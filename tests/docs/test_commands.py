"""Every command and option is documented, and every command line that the pages show is one that there is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer import Exit

from publisher.cli.main import in_front
from tests.conftest import ROOT
from tests.docs import commands
from tests.docs.test_pages import PAGES, page_id

BEGIN = "<!-- made from the commands by `pytest tests/docs --rewrite-golden`; edit publisher/cli instead -->\n"
FENCED = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4}(\S.*)$", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")


def command_lines(text: str) -> list[str]:
    """What is to be typed, in blocks and in running text; what follows a pipe or a comment is left out."""
    spans = [line for block in FENCED.findall(text) for line in block.splitlines()]
    rest = FENCED.sub("", text)
    spans += [*INDENTED.findall(rest), *INLINE.findall(rest)]
    found = []
    for span in spans:
        line = re.sub(r"\s#.*$", "", span.strip().removeprefix("$ ")).removeprefix("sudo -u usage-publisher ")
        if line.startswith("usage-publisher ") and "..." not in line and "…" not in line:
            found.append(re.split(r"\s(?:[|;&>]|&&|2>)", line)[0].rstrip("\\ "))
    return found


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_command_lines_parse(page: Path) -> None:
    wrong = []
    for line in command_lines(page.read_text(encoding="utf-8")):
        words = in_front(shlex.split(line.replace("[", "").replace("]", ""))[1:])
        try:
            parse(words)
        except Exit:  # --version
            continue
        except Exception as error:  # noqa: BLE001 - click's errors, wherever they are defined
            wrong.append(f"{line}: {getattr(error, 'message', error)}")
    assert wrong == []


def parse(words: list[str]) -> None:
    """Follow the words from group to command; raises the errors of click for wrong ones.

    A command without arguments is only named, so required arguments may be missing.
    """
    command = commands.root()
    names: list[str] = []
    while words:
        context = command.make_context(" ".join(["usage-publisher", *names]), list(words), resilient_parsing=False)
        if getattr(command, "commands", None) is None:
            return
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        name, command, words = command.resolve_command(context, rest)
        names.append(str(name))


def test_wrong_lines_would_be_found() -> None:
    for line in ("nosuch", "status --nosuch", "held nosuch", "render --sign", "jobs one two"):
        with pytest.raises(Exception, match=r"(?i)no such|missing|unexpected"):
            parse(line.split())


def test_lines_are_found_in_blocks_and_in_text() -> None:
    text = "Say `usage-publisher status`.\n\n```sh\nusage-publisher run --every 1h   # stays\n```\n"
    assert command_lines(text) == ["usage-publisher run --every 1h", "usage-publisher status"]


def test_every_command_and_option_says_what_it_is_for() -> None:
    silent = [" ".join(path) for path, command in commands.commands() if not (command.help or "").strip()]
    silent += [
        f"{' '.join(path)} {option.opts[0]}"
        for path, command in [((), commands.root()), *commands.commands()]
        for option in commands.options_of(command)
        if not option.help
    ]
    assert silent == []


def test_the_reference_is_that_of_the_commands(root: Path, *, rewrite_golden: bool) -> None:
    page = root / "docs" / "reference" / "commands.md"
    prose, begin, _ = page.read_text(encoding="utf-8").partition(BEGIN)
    assert begin, "the line that the generated part starts with is gone"
    expected = prose + BEGIN + "\n" + commands.render()
    if rewrite_golden:
        page.write_text(expected, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == expected


def test_the_readme_names_every_command() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^(?:\| )?(`[a-z]+`[^|\n]*) \|", readme, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([a-z]+)`", row)}
    assert {path[0] for path, _ in commands.commands()} <= named
