"""Records as AUDITOR's collectors write them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from publisher.config.schema import SourceSettings

NOW = 1_790_000_000
"""2026-09-21."""


def text(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")


def component(name: str, amount: int, **scores: float) -> dict[str, Any]:
    return {"name": name, "amount": amount, "scores": [{"name": each, "value": scores[each]} for each in scores]}


def record(
    record_id: str,
    end: float | None = NOW - 3_600,
    *,
    wall: float = 3_600,
    cores: int = 4,
    cpu: int = 7_200,
    score: float = 14.2,
    start: float | None = None,
    **meta: str,
) -> dict[str, Any]:
    """A record with the names of the template of AUDITOR's APEL plugin."""
    begun = start if start is not None else (NOW if end is None else end) - wall
    return {
        "record_id": record_id,
        "meta": {key: [value] for key, value in ({"site_id": "A", "user_id": "ada"} | meta).items()},
        "components": [
            component("Cores", cores, hepscore23=score),
            component("TotalCPU", cpu),
            component("NNodes", 1),
        ],
        "start_time": text(begun),
        "stop_time": None if end is None else text(end),
    }


def settings(url: str, **auditor: Any) -> SourceSettings:
    """The settings of a source; `cluster` and `overlap` are its own, the others of its table `auditor`."""
    own = {key: auditor.pop(key) for key in ("cluster", "overlap", "complete_since") if key in auditor}
    return SourceSettings.model_validate({"type": "auditor", "auditor": {"url": url, **auditor}, **own})
