"""The manual page, made from the Typer application: roff, as `man` reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.docs import commands

FILE = "docs/usage-publisher.1"
EXIT_CODES = (
    ("0", "all done; also when another run is at work, which is reported"),
    ("1", "something waits for a service, a source or spooling context failed, or check found a problem"),
    ("2", "usage, configuration, a port in use, or output that cannot be written"),
    ("3", "records newly rejected or held; inspect, render --validate, and shadow: a service would refuse a record"),
    ("4", "credentials refused"),
    ("5", "the store cannot be used; nothing was sent"),
    ("6", "internal error: a fault of the program"),
    ("130", "interrupted"),
)  # fmt: skip
EXAMPLES = (
    ("usage\\-publisher check", "test the configuration, certificates, sources, and services"),
    ("usage\\-publisher run", "collect and publish once"),
    ("usage\\-publisher records list \\-\\-state held", "list records that lack something, with the reasons"),
    ("usage\\-publisher report totals \\-\\-month 2026\\-11 \\-\\-by vo", "what each VO used in November"),
    ("usage\\-publisher reconcile \\-\\-month 2026\\-11", "compare what was sent with what the services have"),
)


def render() -> str:
    """The whole page."""
    lines = [
        '.\\" Made from the commands by `pytest tests/docs --rewrite-golden`; edit publisher/cli instead.',
        '.TH USAGE-PUBLISHER 1 "" "usage publisher" "User commands"',
        ".SH NAME",
        "usage\\-publisher \\- accounts for finished batch jobs and publishes them to accounting services",
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
        *(line for command, text in EXAMPLES for line in (".TP", f".B {command}", *_text(text))),
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
        value = "" if option.is_flag else f" \\fI{_escaped(option.metavar or 'VALUE')}\\fR"
        yield from (".TP", words + value, *_text(option.help))


def _plain(metavar: str) -> str:
    return _escaped(re.sub(r"[\[\]]", "", metavar))


def _text(text: str | None) -> list[str]:
    words = _escaped(" ".join((text or "").split()))
    return [f"\\&{words}" if words.startswith((".", "'")) else words]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-")
