"""Metadata: what users write beside a partition, a text under each of some names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidemill.errors import UserError

_MOST_CHARACTERS: Final = 10_000


class BadMetadata(UserError):
    """Metadata that is no text under a name, or too much of it."""

    code = "bad_metadata"
    hint = "correct the metadata as the reason says"

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self.why = why
        super().__init__(f"metadata {name!r} {why}")


class MetadataExists(UserError):
    """Metadata that was to be new, and is there."""

    code = "metadata_exists"

    def __init__(self, dataset: str, partition: str, name: str, value: str) -> None:
        self.dataset = dataset
        self.partition = partition
        self.name = name
        self.value = value
        super().__init__(
            f"partition {partition} of {dataset} has metadata {name!r} already: {value!r}", "set it instead"
        )


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """Entries to add, which must not be there yet; to set, whatever is there; and names to remove, which must be."""

    add: Mapping[str, str] = field(default_factory=dict)
    set: Mapping[str, str] = field(default_factory=dict)
    remove: Collection[str] = ()

    def __post_init__(self) -> None:
        """Refuse a name that is meant twice, and what is no text."""
        check_metadata(self.add)
        check_metadata(self.set)
        named = [*self.add, *self.set, *self.remove]
        if not named:
            raise BadMetadata("", "is not named: say what to add, set or remove")
        for name in named:
            if named.count(name) > 1:
                raise BadMetadata(name, "is named twice")

    def decide(self, dataset: str, partition: str, present: Mapping[str, str]) -> dict[str, str | None]:
        """Return the metadata to store, given the present metadata: values, and None for deleted names.

        Errors: `MetadataExists`, `BadMetadata`.
        """
        for name in self.add:
            if name in present:
                raise MetadataExists(dataset, partition, name, present[name])
        for name in self.remove:
            if name not in present:
                known = f"there are {', '.join(sorted(present))}" if present else "it has none"
                raise BadMetadata(name, f"is not there in partition {partition} of {dataset}: {known}")
        return {**self.add, **self.set, **dict.fromkeys(self.remove)}


def check_metadata(entries: Mapping[str, str]) -> dict[str, str | None]:
    """Check `entries` and return them. `BadMetadata` if a value is not text."""
    for name, value in entries.items():
        if not isinstance(name, str) or not name or not isinstance(value, str):
            raise BadMetadata(str(name), f"is no text under a name: {value!r}")
        if "\0" in name + value:
            raise BadMetadata(name, "has a NUL character in it")
    if sum(len(name) + len(value) for name, value in entries.items()) > _MOST_CHARACTERS:
        raise BadMetadata(next(iter(entries)), f"and what stands beside it are more than {_MOST_CHARACTERS} characters")
    return dict(entries)
