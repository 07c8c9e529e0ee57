"""All of the sample, as we render it, is valid against the official schemas; as ARC's publisher renders it, none is.

This is the order of elements that the facts on formats call defects 5 and 13 of ARC's publisher. The schema of UR has
no place for extensions: elements of foreign namespaces are taken away first (facts on formats, 0.8). Its host names are
narrower than those of the services.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from lxml import etree

from formats.job import Job
from formats.registry import record_format
from formats.view import View
from tests.agreement.differences import CREATED
from tests.agreement.test_records import AS_ARC, DEFAULT
from tests.formats.test_any_job import with_names_of_the_schema

SCHEMAS = {"ogf-ur": "urf.xsd", "emi-car": "car_v1.2.xsd"}


@pytest.fixture(scope="module")
def official(shared: Path) -> dict[str, etree.XMLSchema]:
    """The official schemas by format."""
    return {name: etree.XMLSchema(etree.parse(shared / "schemas" / file)) for name, file in SCHEMAS.items()}


def without_extensions(payload: bytes) -> etree._Element:
    """A message without elements of foreign namespaces."""
    root = etree.fromstring(payload)
    namespace = etree.QName(root).namespace
    for element in [one for one in root.iter() if etree.QName(one).namespace != namespace]:
        parent = element.getparent()
        assert parent is not None
        parent.remove(element)
    return root


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("view", [DEFAULT, AS_ARC], ids=["default", "as-arc"])
def test_our_message_is_valid(name: str, view: View, jobs: list[Job], official: dict[str, etree.XMLSchema]) -> None:
    renderer = record_format(name, view)
    payload = renderer.message([renderer.record(job, CREATED).body for job in jobs])
    assert payload.isascii()
    official[name].assertValid(with_names_of_the_schema(without_extensions(payload)))


@pytest.mark.parametrize(("name", "kind"), [("ogf-ur", "sgas"), ("emi-car", "cars")])
def test_arcs_messages_are_not(
    name: str, kind: str, arc_payloads: dict[str, list[bytes]], official: dict[str, etree.XMLSchema]
) -> None:
    payloads = [payload for payload in arc_payloads[kind] if payload.startswith(b"<")]
    assert payloads
    for payload in payloads:
        for record in without_extensions(payload):
            assert not official[name].validate(record)
