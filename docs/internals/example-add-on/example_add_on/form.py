"""A format with one JSON object a record."""

import json

from formats.base import Rendered
from formats.rule_codes import CannotRenderError, RuleCode


class ExampleFormat:
    """Records as JSON; `view` says how the receiver sees the jobs."""

    name = "example-json"
    content_type = "application/json"
    overhead_bytes = 3
    separator_bytes = 2

    def __init__(self, view):
        self._site = view.site

    def record(self, job, created):
        if not job.vo:
            raise CannotRenderError(RuleCode.ADD_ON, "vo", text="this format insists on one: add a mapping rule")
        values = {"site": job.site or self._site, "id": job.record_id, "user": job.local_user, "vo": job.vo}
        body = json.dumps(values | {"end": job.end, "wall_ms": job.wall_ms, "cpu_ms": job.cpu_ms, "cores": job.cores})
        return Rendered(body.encode("ascii"), record_id=job.record_id)

    def message(self, bodies):
        return b"[" + b",\n".join(bodies) + b"]\n"
