"""The settings that decide what is planned, held, and rendered for a target, as text.

The store keeps the present ones of each target, and the earlier ones with the messages that were made by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from publisher.config.energy import Energy
from publisher.config.rules import MapRule
from publisher.config.schema import Config, Target
from publisher.config.types import FROM_STORE, Settings, came_later, planning_settings

RULES_VERSION: Final = 2
"""Increased when a new version of the program plans or holds differently, so that deliveries are planned again."""

_Table = TypeVar("_Table", bound=Settings)


def settings_text(target: Target, config: Config) -> str:
    """All settings that decide what is planned and held, as text: when it changes, deliveries are planned again."""
    selection = _planning(target)
    selection["ur_extensions"] = sorted(selection["ur_extensions"])
    everything = {
        "rules": RULES_VERSION,
        "site": config.site.name,
        "target": selection,
        "sources": {name: _planning(source) for name, source in sorted(config.sources.items())},
        "map": to_jsonable_python(config.map),
    }
    if target.needs_energy:  # what is held because its energy is unknown is then tried again
        everything["energy"] = to_jsonable_python([config.energy.pue, config.energy.power, config.nodes])
    return msgspec.json.encode(everything, order="deterministic").decode()


def _planning(settings: Settings) -> dict[str, Any]:
    """The values alone: to dump the table, pydantic would build a serializer of all its settings."""
    model = type(settings)
    return {
        name: to_jsonable_python(getattr(settings, name))
        for name in planning_settings(model)
        if not (came_later(model, name) and getattr(settings, name) == model.model_fields[name].default)
    }


def config_of_text(text: str, name: str, config: Config) -> Config | None:
    """The configuration with the settings of a text for a target and its sources; everything else is as it is now, and
    so are sources that are not configured any more. None: a version of this program wrote settings that this one does
    not have, or the target was sent another format.

    Raises `ValueError` and `KeyError` for what is not such a text.
    """
    stored = msgspec.json.decode(text)
    if stored["target"]["records"] != config.targets[name].records:
        return None
    try:
        sources = {
            each: _with_values(source, stored["sources"][each]) if each in stored["sources"] else source
            for each, source in config.sources.items()
        }
        changes: dict[str, Any] = {
            "site": config.site.model_copy(update={"name": stored["site"]}),
            "sources": sources,
            "targets": {**config.targets, name: _with_values(config.targets[name], stored["target"])},
            "map": _valid(tuple[MapRule, ...], stored["map"]),
        }
        if "energy" in stored:
            pue, power, nodes = stored["energy"]
            energy = {"pue": _value(Energy, "pue", pue), "power": _value(Energy, "power", power)}
            changes["energy"] = config.energy.model_copy(update=energy)
            changes["nodes"] = _value(Config, "nodes", nodes)
    except ValidationError:
        return None
    return config.model_copy(update=changes)


def _with_values(settings: _Table, values: Mapping[str, Any]) -> _Table:
    """The table with these planning settings; one that the text lacks has its default value."""
    model = type(settings)
    changes: dict[str, Any] = {}
    for name in planning_settings(model):
        field = model.model_fields[name]
        changes[name] = field.get_default(call_default_factory=True, validated_data={})
        if name in values:
            changes[name] = _value(model, name, values[name])
    return settings.model_copy(update=changes)


def _value(model: type[Settings], name: str, value: Any) -> Any:
    field = model.model_fields[name]
    return _valid(Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation, value)


def _valid(kind: Any, value: Any) -> Any:
    return TypeAdapter(kind).validate_python(value, context=FROM_STORE)
