"""Our grammars give the verdicts of the official schemas, on records as rendered and on spoilt ones."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from formats.check.grammar import SchemaViolation, UnknownGrammarError, standard_part, validate
from formats.job import Job
from formats.registry import record_format
from formats.view import View
from formats.xml.read import NotAMessageError, parse
from tests.formats.test_any_job import CREATED, official_schema, with_names_of_the_schema
from tests.strategies import plain_jobs

XML_NAMES = ["emi-car", "ogf-ur"]
TEXTS = (
    "",
    "x y",
    "-1",
    "0",
    "1.5",
    "PT1S",
    "P1Y",
    "3600",
    "2026-01-01T00:00:00Z",
    "2026-01-01",
    "n",
    "a_b",
    "true",
    "INF",
    "user",
    "all",
)


def mutate(root: etree._Element, rng: random.Random) -> None:
    """Do one thing to a record that may make it invalid."""
    elements = [element for element in root.iter(tag=etree.Element) if element is not root]
    if not elements:
        return
    element = rng.choice(elements)
    parent = element.getparent()
    assert parent is not None
    kind = rng.randrange(7)
    if kind == 0:
        parent.remove(element)
    elif kind == 1:
        element.text = rng.choice(TEXTS)
    elif kind == 2 and element.attrib:
        element.set(rng.choice(list(element.attrib)), rng.choice(TEXTS))
    elif kind == 3 and element.attrib:
        del element.attrib[rng.choice(list(element.attrib))]
    elif kind == 4:
        parent.insert(rng.randrange(len(parent) + 1), element)
    elif kind == 5:
        etree.SubElement(parent, rng.choice(elements).tag).text = rng.choice(TEXTS)
    else:
        element.set(rng.choice(("type", f"{{{etree.QName(element).namespace}}}metric")), "total")


@pytest.mark.parametrize("name", XML_NAMES)
@given(job=plain_jobs(), seed=st.integers(0, 2**32))
def test_verdicts_are_those_of_the_official_schemas(name: str, job: Job, seed: int, shared: Path) -> None:
    renderer = record_format(name, View(site="S"))
    rng = random.Random(seed)
    record = standard_part(parse(renderer.message([renderer.record(job, CREATED).body])))
    for _ in range(rng.randrange(4)):
        mutate(record, rng)
    as_standard = with_names_of_the_schema(etree.fromstring(etree.tostring(record)))
    official = official_schema(shared, name).validate(as_standard)
    ours = [found for found in validate(name, etree.tostring(record)) if "times" not in found.rule]
    assert (ours == []) == official, ours or official_schema(shared, name).error_log


def test_a_violation_names_record_field_and_rule() -> None:
    renderer = record_format("ogf-ur", View(site="S"))
    job = Job(record_id="ur-1", system="slurm", status="completed", cluster="ce1.example.org", nodes=1)
    message = renderer.message([renderer.record(job, CREATED).body]).replace(b"<NodeCount>1<", b"<NodeCount>0<")
    (found,) = validate("ogf-ur", message)
    assert (found.record, found.field) == ("ur-1", "NodeCount")
    assert "positiveInteger" in found.rule


def test_base_properties_are_there_once() -> None:
    renderer = record_format("ogf-ur", View(site="S"))
    job = Job(record_id="ur-1", system="slurm", status="completed", cluster="ce1.example.org", queue="q")
    message = renderer.message([renderer.record(job, CREATED).body]).replace(
        b"<Queue>q</Queue>", b"<Queue>q</Queue>" * 2
    )
    assert validate("ogf-ur", message) == [SchemaViolation("ur-1", "Queue", "occurs 2 times; it must occur once")]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"<a/>",
        b"<UsageRecords/>",
        b"APEL-sync-message: v0.1\n",
        b'<!DOCTYPE x [<!ENTITY e "v">]><UsageRecords xmlns="http://schema.ogf.org/urf/2003/09/urf">&e;</UsageRecords>',
        b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><UsageRecords xmlns="http://schema.ogf.org/urf/2003/09/urf"/>',
    ],
)
def test_what_is_not_a_message_is_one_violation(payload: bytes) -> None:
    with pytest.raises(NotAMessageError):
        parse(payload)
    assert len(validate("ogf-ur", payload)) == 1


def test_formats_without_a_grammar() -> None:
    with pytest.raises(UnknownGrammarError):
        validate("apel-sync", b"")
