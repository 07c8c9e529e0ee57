"""The templates: everything that stands in a page is escaped unless it is written in a template.

Style and script stand in the page itself, which the security policy allows by their digests and nothing else: no other
script runs, whatever a job is called.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.metadata import version as version_of
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_FOLDER: Final = "templates"


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("publisher.page", _FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip


@cache
def _part(name: str) -> str:
    return files("publisher.page").joinpath(_FOLDER, name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


@cache
def policy(*, served: bool) -> str:
    """The security policy of a page: only the style and the script that we wrote, no frames, no other hosts."""
    rules = [
        "default-src 'none'",
        f"style-src {_digest(_part('style.css'))}",
        f"script-src {_digest(_part('page.js'))}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'self'" if served else "form-action 'none'",
    ]
    if served:
        rules.append("frame-ancestors 'none'")
    return "; ".join(rules)


def markup(template: str, context: dict[str, Any]) -> str:
    """A template filled in. `title` and `site` are always needed; no `menu` and no `person` is a page by itself."""
    common = {
        "standalone": False, "menu": (), "person": None, "style": Markup(_part("style.css")),  # noqa: S704 - our own
        "script": Markup(_part("page.js")), "policy": policy(served=False), "version": version_of("usage-publisher"),  # noqa: S704
    }  # fmt: skip
    return _environment().get_template(template).render({**common, **context})
