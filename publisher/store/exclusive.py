"""All of the store's locks at once: nothing is collected and nothing sent while its keeper works on it as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from sqlalchemy import select

from publisher.errors import UsageError
from publisher.store.database import Store
from publisher.store.tables import targets


@contextmanager
def exclusive(store: Store, names: Iterable[str] = ()) -> Iterator[None]:
    """Hold the locks of collecting and of every target, those known to the store and `names`.

    Raises `UsageError` at once where another process holds one of them.
    """
    with store.read() as connection:
        known = set(connection.execute(select(targets.c.name)).scalars())
    with ExitStack() as stack:
        for name in ("collect", *(f"target-{name}" for name in sorted(known.union(names)))):
            if not stack.enter_context(store.lock(name)):
                work = "collecting" if name == "collect" else f"at work for target {name.removeprefix('target-')}"
                raise UsageError(
                    f"a publisher is {work} in the store {store.place}",
                    hint="Stop the timer, or try again when it is done; nothing was changed",
                )
        yield
