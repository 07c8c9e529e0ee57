"""Targets: one module for each kind of service, behind the protocol of `publisher.targets.base`.

The kinds of this program are listed in `publisher.config.targets.TARGET_KINDS`; those of add-ons come by the
entry-point group `usage_publisher.targets`: a callable with name, settings, and context. A module is imported when a
target of its kind is made, so that commands that send nothing start quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from publisher import plugins
from publisher.config.targets import TARGET_KINDS
from publisher.errors import ConfigError
from publisher.text import unknown_name

if TYPE_CHECKING:
    from publisher.targets.base import Target
    from publisher.targets.identity import TargetContext

TargetFactory: TypeAlias = "Callable[[str, Any, TargetContext], Target]"


def make_target(name: str, settings: Any, context: TargetContext) -> Target:
    """Make the target NAME of the configuration. `settings.type` is its kind.

    Raises `ConfigError` for an unknown kind, and for settings with which nothing can be sent safely.
    """
    return _factory(name, settings.type)(name, settings, context)


def _factory(name: str, kind: str) -> TargetFactory:
    if kind in TARGET_KINDS:
        module, _, attribute = TARGET_KINDS[kind].factory.partition(":")
        return cast("TargetFactory", getattr(import_module(module), attribute))
    made = plugins.load(plugins.TARGETS, kind, key=f"targets.{name}.type")
    if made is None:
        known = [*TARGET_KINDS, *plugins.names(plugins.TARGETS)]
        raise ConfigError(unknown_name("kind of target", kind, known), key=f"targets.{name}.type")
    from publisher.targets.plugin import added_target  # noqa: PLC0415

    return partial(added_target, kind, made)
