"""Statements of a month as files: text, HTML, and PDF, one of each for every payer."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final, Literal

import msgspec

from publisher.errors import OutputError
from publisher.report.statements.document import statement_document, to_html, to_text
from publisher.report.statements.statement import Statement, Statements
from publisher.whole_file import require_own_folder, write_all_whole

Kind = Literal["text", "html", "pdf"]
SUFFIXES: Final[dict[Kind, str]] = {"text": ".txt", "html": ".html", "pdf": ".pdf"}
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._@-]")


class StatementFiles(msgspec.Struct, frozen=True):
    """The files of statements, and how many of them replaced earlier ones."""

    paths: tuple[Path, ...]
    replaced: int


def write(made: Statements, directory: Path, kinds: tuple[Kind, ...]) -> StatementFiles:
    """Write every statement in these kinds into a folder. Raises `OutputError`."""
    folder = directory / made.month
    # All are made before the first is written: one that cannot be made must not leave a part of the month.
    contents = {
        folder / f"{_file_name(statement.payer)}{SUFFIXES[kind]}": document(made, statement, kind)
        for statement in made.all
        for kind in kinds
    }
    try:
        require_own_folder(folder)
        replaced = sum(file.exists() for file in contents)
        # Those of the month belong together: the old statement of one payer beside the new one of another is wrong.
        write_all_whole(contents)
    except OSError as error:
        raise OutputError(
            f"statements cannot be written to {folder}: {error.strerror}",
            hint="Free space there, or name another folder with --output, and write them again",
        ) from error
    return StatementFiles(tuple(contents), replaced)


def document(made: Statements, one: Statement, kind: Kind) -> bytes:
    """A statement as the content of a file."""
    texts = statement_document(made, one)
    if kind == "pdf":
        from publisher.report.statements.pdf import to_pdf  # noqa: PLC0415 - slow to load

        return to_pdf(texts)
    return (to_text(texts) if kind == "text" else to_html(texts)).encode("utf-8", "backslashreplace")


def _file_name(payer: str) -> str:
    """A file name for any payer, different for each."""
    safe = _UNSAFE.sub("_", payer).lstrip(".")[:80]
    if safe == payer:
        return safe
    mark = hashlib.blake2b(payer.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
    return f"{safe or 'payer'}-{mark}"
