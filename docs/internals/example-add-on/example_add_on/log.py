"""A source: lines of ID,USER,END,WALL,CPU,CORES; times in epoch seconds, durations in seconds."""

from formats.identity import run_record_id
from formats.job import Job
from publisher.errors import ConfigError
from publisher.sources.base import UnreadableLine
from publisher.sources.logs.lines import LineSource, StatelessParser
from publisher.sources.logs.reader import LogReader


class ExampleParser(StatelessParser):
    """Parses one line at a time."""

    reads = frozenset({"example"})

    def __init__(self, cluster):
        self._cluster = cluster

    def parse(self, line):
        fields = line.decode("utf-8", "backslashreplace").split(",")
        if len(fields) != 6:
            return UnreadableLine(f"has {len(fields)} fields, not 6")
        try:
            end, wall_s, cpu_s, cores = map(int, fields[2:])
        except ValueError:
            return UnreadableLine("end, wall, cpu and cores are not whole numbers")
        return Job(
            record_id=run_record_id("example", self._cluster, fields[0], end - wall_s),
            system="example",
            status="completed",
            local_id=fields[0],
            local_user=fields[1],
            cluster=self._cluster,
            start=end - wall_s,
            end=end,
            wall_ms=wall_s * 1000,
            cpu_ms=cpu_s * 1000,
            cores=cores,
            nodes=1,
        )


class ExampleSource(LineSource):
    """The log of one cluster."""

    def __init__(self, name, settings):
        if settings.path is None:
            raise ConfigError("a source of type example-log needs a path", key=f"sources.{name}.path")
        cluster = settings.options.get("cluster", "example")
        super().__init__(
            name,
            "example-log",
            LogReader(settings.path),
            lambda: ExampleParser(cluster),
            complete_since=settings.complete_since,
        )
