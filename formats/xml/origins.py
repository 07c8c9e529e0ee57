"""The origins of the elements of UR and CAR: made from a layout where it says all of it, and those that both have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from formats.origin import AS_IT_IS, BENCHMARK, CORES, MACHINE, RECORD_ID, SECONDS, USER_NAME, Origin, Origins, origin
from formats.xml.layout import Duration, Element, Part, Text, Together

_FACT: Final = re.compile(r"\bjob\.(\w+)")
_ATTRIBUTE: Final = re.compile(r'urf:\w+="([^"]*)"')
_EXTENSION: Final = "self._with_"
"""How the expression of an element begins its condition, if `ur_extensions` adds the element."""

GLOBAL_ID: Final = origin("global_id", "record_id", how="the global id, else the record id")
RESOURCE: Final = origin("gpus", "energy_j", "extras", how="devices, joules, and numbers by the source's own names")
HOSTS: Final = origin("hosts", how="host names, the first as primary; other texts are omitted")

SHARED: Final[Origins] = {
    "RecordIdentity@recordId": RECORD_ID,
    "JobIdentity/GlobalJobId": GLOBAL_ID,
    "JobIdentity/ProcessId": origin("process_ids"),
    "UserIdentity/GlobalUserName": USER_NAME,
    "Charge": origin("charge"),
    "Status": origin("status", how="a cancelled job is aborted"),
    "Processors": CORES,
    "MachineName": MACHINE,
    "Queue": origin("queue"),
    "Host": HOSTS,
    "Host@primary": HOSTS,
    "ServiceLevel": BENCHMARK,
    "ConsumableResource": RESOURCE,
    "ConsumableResource@description": RESOURCE,
    "ConsumableResource@units": RESOURCE,
}


def origins_of(layout: Iterable[Part]) -> dict[str, Origin]:
    """The origin of each element of a layout that is one fact of the run."""
    elements: list[Element] = []
    for part in layout:
        if isinstance(part, Together):
            elements += part.parts
        elif isinstance(part, Element):
            elements.append(part)
    return {_field(element): _origin(element) for element in elements if _is_plain(element.source)}


def _is_plain(source: str) -> bool:
    """Whether an expression gives one fact as it is, and no note."""
    return len(set(_FACT.findall(source))) == 1 and "notes" not in source


def _field(element: Element) -> str:
    """The element's name as in `formats.check.fields`: with the attributes that distinguish it."""
    attributes = sorted(_ATTRIBUTE.findall(element.attributes))
    return element.name.rpartition(":")[2] + (f"[{','.join(attributes)}]" if attributes else "")


def _origin(element: Element) -> Origin:
    how = AS_IT_IS
    if isinstance(element, Duration):
        how = SECONDS
    elif isinstance(element, Text):
        how = f"shortened to {element.rule.longest} characters"
    settings = ("ur_extensions",) if _EXTENSION in element.source else ()
    return Origin((_FACT.findall(element.source)[0],), how, settings)
