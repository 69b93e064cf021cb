"""Times that a transaction declares to write, so that no watermark passes them while it is open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tidemill.epoch import to_micros
from tidemill.errors import UserError
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.window.watermark import EARLIEST, LATEST
from tidemill.names import DatasetId
from tidemill.run.records.programs import Value, WrittenSpan
from tidemill.shapes.partition_time import Instant, Zone


class BadSpan(UserError):
    """A span of time that cannot be, or of a file set without a watermark."""

    code = "bad_span"
    hint = "give a span on the wall clock of a file set with a watermark"

    def __init__(self, dataset: str, why: str) -> None:
        self.dataset = dataset
        self.why = why
        super().__init__(f"the span of {dataset} is refused: {why}")


@dataclass(frozen=True, slots=True)
class DeclaredSpan:
    """A file set with the times, on the wall clock of its zone, `[start, end)`, of the partitions to be written."""

    qualified_name: str
    start: str | datetime | None = None
    end: str | datetime | None = None


def write_span(span: DeclaredSpan) -> WrittenSpan:
    """Return a span among the `writes` of a program, as the catalog keeps it."""
    start, end = (one.isoformat(" ") if isinstance(one, datetime) else one for one in (span.start, span.end))
    return WrittenSpan(span.qualified_name, start, end)


def bind_spans(
    filesets: Mapping[str, Fileset], spans: Iterable[WrittenSpan], arguments: Mapping[str, Value]
) -> dict[DatasetId, tuple[Instant, Instant]]:
    """Return the instants of a program's spans in a run with these arguments. `BadSpan`.

    An argument may give a time with a zone, as `tm.From("logical_time")` does: then the wall-clock time of the file
    set counts.
    """
    bound = []
    for span in spans:
        try:
            one = span.bind(arguments)
        except KeyError as error:
            raise BadSpan(span.dataset, f"the run has no argument {error}: start a new run") from None
        spec = filesets[one.dataset].watermark
        zone = Zone("UTC") if spec is None else spec.partition_time.zone
        bound.append(DeclaredSpan(one.dataset, _to_local(one.start, zone), _to_local(one.end, zone)))
    return find_spans(filesets, bound)


def _to_local(text: str | None, zone: Zone) -> str | datetime | None:
    try:
        time = None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return text
    return text if time is None or time.tzinfo is None else zone.local(to_micros(time))


def find_spans(filesets: Mapping[str, Fileset], writes: Iterable[object]) -> dict[DatasetId, tuple[Instant, Instant]]:
    """The instants of the spans among `writes`; what declares none holds nothing. `BadSpan`."""
    spans: dict[DatasetId, tuple[Instant, Instant]] = {}
    for write in writes:
        if isinstance(write, DeclaredSpan):
            fileset = filesets[write.qualified_name]
            if fileset.watermark is None:
                raise BadSpan(fileset.qualified_name, "it has no watermark, which a span could hold")
            zone = fileset.watermark.partition_time.zone
            start, end = _parse(write, write.start), _parse(write, write.end)
            low = EARLIEST if start is None else zone.opens(start)
            high = LATEST if end is None else zone.closes(end)
            if low >= high:
                why = f"its end {write.end} is not after its start {write.start}"
                raise BadSpan(fileset.qualified_name, why)
            spans[fileset.dataset_id] = (low, high)
    return spans


def _parse(span: DeclaredSpan, given: str | datetime | None) -> datetime | None:
    if given is None:
        return None
    try:
        time = given if isinstance(given, datetime) else datetime.fromisoformat(given)
    except ValueError:
        raise BadSpan(span.qualified_name, f"{given!r} is no time: write '2021-03-19 10:00'") from None
    if time.tzinfo is not None:
        raise BadSpan(span.qualified_name, f"{given!r} has a time zone: it is a time on the wall clock of the file set")
    return time
