"""The manual page, made from the Typer application: roff, as `man` reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.conftest import ROOT
from tests.docs import commands

FILE = "docs/usage-publisher.1"
EXIT_CODES = re.findall(
    r"^(?:\| )?(\d+) \| ([^|\n]*) \|", (ROOT / "docs" / "reference" / "exit-codes.md").read_text("utf-8"), re.MULTILINE
)
"""Code and meaning."""
EXAMPLES = (
    ("usage-publisher check", "Test the configuration, certificates, sources, and services."),
    ("usage-publisher run", "Collect and publish once. The timer runs this command."),
    ("usage-publisher status", "Show what each service has, what waits, and what to do next."),
    ("usage-publisher records list --state held", "List records that lack something, with the reasons."),
    ("usage-publisher jobs 4711", "Show all that is known of a job, and where it was delivered."),
    ("usage-publisher report totals --month 2026-11 --by vo", "What each VO used in November."),
    ("usage-publisher render apel-summary --target apel --since 2026-11 --until 2026-12 --validate",
     "Show the summaries of November as they would be sent, and check them; nothing is sent."),
    ("usage-publisher reconcile apel --month 2026-11 --file portal.csv",
     "Compare what was sent to apel with what the service has."),
    ("usage-publisher republish apel --month 2026-11 --dry-run",
     "Show what would be sent again of November. Without --dry-run, it asks and sends."),
    ("usage-publisher --json status | jq .delivered", "Print true if every service has every job."),
    ("usage-publisher store backup /backup/usage-publisher.db", "Copy an SQLite store while publishers run."),
)  # fmt: skip


def render() -> str:
    """The whole page."""
    lines = [
        '.\\" Made from the commands by `pytest tests/docs --rewrite-golden`; edit publisher/cli instead.',
        '.TH USAGE-PUBLISHER 1 "" "usage publisher" "User commands"',
        ".SH NAME",
        "usage\\-publisher \\- send usage records of batch jobs to accounting services",
        ".SH SYNOPSIS",
        ".B usage\\-publisher",
        "[\\fB\\-\\-config\\fR \\fIFILE\\fR]",
        "[\\fB\\-\\-verbose\\fR|\\fB\\-\\-quiet\\fR] [\\fB\\-\\-json\\fR] \\fICOMMAND\\fR",
        ".SH DESCRIPTION",
        *_text(commands.root().help),
        ".SH OPTIONS",
        *_options(commands.root()),
        ".SH COMMANDS",
    ]
    for path, command in commands.commands():
        arguments = " ".join(f"\\fI{_plain(argument.metavar or argument.name.upper())}\\fR" for argument in
                             commands.arguments_of(command))  # fmt: skip
        lines += [f".SS {_escaped(' '.join(path))} {arguments}".rstrip(), *_text(command.help), *_options(command)]
    lines += [".SH EXIT STATUS", *(line for code, text in EXIT_CODES for line in (".TP", code, *_text(text)))]
    lines += [
        ".SH EXAMPLES",
        *(line for command, text in EXAMPLES for line in (".TP", f".B {_escaped(command)}", *_text(text))),
        ".SH FILES",
        ".TP",
        ".I /etc/usage\\-publisher/publisher.toml",
        "the configuration, where neither \\fB\\-\\-config\\fR nor $USAGE_PUBLISHER_CONFIG names another",
        ".SH SEE ALSO",
        "The documentation of the project explains every key, source, format and service.",
    ]
    return "\n".join(lines) + "\n"


def _options(command: commands.Command) -> Iterator[str]:
    for option in commands.options_of(command):
        words = ", ".join(f"\\fB{_escaped(word)}\\fR" for word in (*option.opts, *option.secondary_opts))
        value = f" \\fI{_escaped(commands.value_of(option))}\\fR" if commands.value_of(option) else ""
        yield from (".TP", words + value, *_text(option.help))


def _plain(metavar: str) -> str:
    return _escaped(re.sub(r"[\[\]]", "", metavar))


def _text(text: str | None) -> list[str]:
    words = _escaped(" ".join((text or "").split()))
    return [f"\\&{words}" if words.startswith((".", "'")) else words]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-")
