"""GPUs, energy and whatever else a source counts, in the one place that UR and CAR have for it: ConsumableResource.

No service reads them today (SGAS and APEL ignore the element); they are there for sites that keep the messages.
"""

from __future__ import annotations

from formats import fit
from formats.job import Job
from formats.record import Note
from formats.rules import TextRule

GPUS = ("gpus", "devices")
ENERGY = ("energy", "J")
"""Description and units of the two that a job has fields for; an extra has its own name and no units."""

RESOURCES = (
    "consumable_resources(job, rules.RESOURCE, notes) "
    "if job.extras or job.gpus is not None or job.energy_j is not None else ''"
)
"""The call in a layout: most runs have none of them."""


def consumable_resources(job: Job, rule: TextRule, notes: list[Note]) -> str:
    """ConsumableResource elements of a run: its GPUs, its energy, and its extras that are numbers, by name."""
    elements = []
    for (description, units), value in ((GPUS, job.gpus), (ENERGY, job.energy_j)):
        if value is not None and (amount := fit.real("ConsumableResource", value, notes)):
            elements.append(
                f'<ConsumableResource urf:units="{units}" urf:description="{description}">{amount}</ConsumableResource>'
            )
    for name, extra in sorted(job.extras.items()):
        if isinstance(extra, str):
            continue
        label = fit.text(rule, name, notes)
        amount = fit.real("ConsumableResource", extra, notes)
        if label and amount:
            elements.append(f'<ConsumableResource urf:description="{label}">{amount}</ConsumableResource>')
    return "".join(elements)
