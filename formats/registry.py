"""The formats by name, each with its descriptor; and a format bound to a view."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from formats.apel import job as apel_job
from formats.apel import summary as apel_summary
from formats.apel.text import parse as parse_text
from formats.auditor import record as auditor
from formats.base import Format, RecordFormat, Shape, TotalsFormat
from formats.columns import RecordColumns
from formats.rules import type_of
from formats.utilization import report as utilization
from formats.utilization.report import UtilizationFormat
from formats.view import View
from formats.waldur import usage as waldur_usage
from formats.xdmod import slurm as xdmod_slurm
from formats.xml import emi_car, ogf_ur
from formats.xml.pieces import pieces


def _xml_columns(payload: bytes) -> list[RecordColumns]:
    """Read them with lxml, which is loaded only where something is read back."""
    from formats.xml.columns import read_columns  # noqa: PLC0415 - loads lxml, which sending does not need

    return read_columns(payload)


FORMATS: Final[Mapping[str, Format]] = {
    each.name: each
    for each in (
        apel_job.FORMAT,
        apel_summary.NORMALISED_SUMMARY,
        apel_summary.SUMMARY,
        apel_summary.SYNC,
        auditor.FORMAT,
        msgspec.structs.replace(emi_car.FORMAT, columns=_xml_columns, pieces=pieces),
        msgspec.structs.replace(ogf_ur.FORMAT, columns=_xml_columns, pieces=pieces),
        waldur_usage.FORMAT,
        xdmod_slurm.FORMAT,
        utilization.FORMAT,
    )
}


USUAL_RECORDS: Final = ogf_ur.FORMAT
"""Its `dimensions` and `summed_columns` are those of formats of records that have none of their own."""


def names_of(*shapes: Shape) -> tuple[str, ...]:
    """The names of the formats with these shapes."""
    return tuple(name for name, each in FORMATS.items() if each.shape in shapes)


class UnknownFormatError(KeyError):
    """No format with these shapes has this name; `known` lists those that have them."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(name)
        self.name = name
        self.known = tuple(sorted(known))

    def __str__(self) -> str:
        return f"unknown format {self.name!r}; known: {', '.join(self.known)}"


def record_format(name: str, view: View) -> RecordFormat:
    """The format of that name with one record a run, bound to a view. Raises `UnknownFormatError`, `ValueError`."""
    made: RecordFormat = _made("record", name, view)
    return made


def totals_format(name: str, view: View) -> TotalsFormat:
    """The format of that name with totals or sync counts, bound to a view.

    Raises `UnknownFormatError`, and `ValueError` for a version that the format does not have.
    """
    made: TotalsFormat = _made("sync" if name in names_of("sync") else "totals", name, view)
    return made


def report_format(name: str, view: View) -> UtilizationFormat:
    """The report format of that name, bound to a view.

    Raises `UnknownFormatError`, and `ValueError` for a version that the format does not have.
    """
    made: UtilizationFormat = _made("report", name, view)
    return made


def _made(shape: Shape, name: str, view: View) -> Any:
    known_format = FORMATS.get(name)
    if known_format is None or known_format.shape != shape:
        raise UnknownFormatError(name, names_of(shape))
    return known_format.make(view)


def format_of_message(payload: bytes) -> Format:
    """The format by which the records of a message are read; one of the XML formats for both.

    Raises `ValueError` for a message of another kind.
    """
    from formats.xml.read import begins_as_xml  # noqa: PLC0415 - loads lxml, as above

    if begins_as_xml(payload):
        return FORMATS[ogf_ur.FORMAT.name]
    header = parse_text(payload.strip().partition(b"\n")[0].decode("utf-8"))
    message_type = type_of(header.header, header.kind, header.version)
    if message_type is None:
        raise ValueError(f"not a message of a known kind: {header.header[:80]}")
    return FORMATS[message_type.name]


def require_version(name: str, version: str) -> None:
    """Raise `ValueError`, naming the versions of the format, for a version that it does not have.

    `v0.2` is `0.2`, and an empty version is the format's default. Formats of add-ons check their versions themselves.
    """
    known = FORMATS[name].versions if name in FORMATS else ()
    plain = version.removeprefix("v") if version[1:2].isdigit() else version
    if known and version and plain not in known:
        raise ValueError(f"{name} has no version {version!r}; it has {' and '.join(known)}")
