"""What the commands do, as a library: `Publisher` holds a configuration and its store.

    publisher = Publisher.from_file(Path("publisher.toml"))
    publisher.collect()
    publisher.publish()
    print(publisher.status().delivered)

Every method raises the errors of `publisher.errors`; trouble with one source or target is in its result.
"""

from __future__ import annotations

from publisher.api.deciding import Deciding
from publisher.api.keeping import Keeping
from publisher.api.knowing import FoundJobs, JobFilter, Knowing, ListedRecord
from publisher.api.messages import Messages
from publisher.api.opened import wall_clock
from publisher.api.reporting import Reporting
from publisher.api.sending import RunResult, Sending

__all__ = ["FoundJobs", "JobFilter", "ListedRecord", "Publisher", "RunResult", "wall_clock"]


class Publisher(Sending, Messages, Reporting, Knowing, Deciding, Keeping):
    """A site's publisher. Close it, or use it in a `with` statement. Each of its parts has a module of its own."""
