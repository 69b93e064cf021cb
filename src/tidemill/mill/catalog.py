"""A catalog as a whole, as `Mill` offers it: audit, comparison with storage, backup, restore."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tidemill.catalog.db import Db
from tidemill.lake import datasets
from tidemill.lake.datasets import DatasetKind
from tidemill.lake.fileset.fileset import Fileset
from tidemill.mill.operation import Right, operation
from tidemill.mill.project import Noun
from tidemill.upkeep.audit import Audit, audit
from tidemill.upkeep.backup import Written, write_backup
from tidemill.upkeep.fsck import Fsck, fsck
from tidemill.upkeep.move import Moved, move
from tidemill.upkeep.restore import Adopted, Restored, adopt, restore


class CatalogUpkeep(Noun):
    """Operations on the whole catalog."""

    noun = "catalog"

    @operation(Right.READ, command="audit check", whole=True)
    def audit(self, names: Sequence[str] = ()) -> Audit:
        """Check that all commits (to these data sets) were delivered, consumed and announced once.

        Reads the history, in pieces, while work goes on; changes nothing. `NotFound` with the nearest name.
        """
        chosen = self._catalog.read(lambda db: [self._project.dataset(db, name) for name in names]) if names else None
        return audit(self._catalog, chosen)

    @operation(Right.READ, whole=True)
    def fsck(self, names: Sequence[str] = ()) -> Fsck:
        """Compare manifests (of these file sets) with the files in storage, both ways. `NotFound`."""

        def block(db: Db) -> list[Fileset]:
            if names:
                return [Fileset.of(self._project.dataset(db, name)) for name in names]
            return [Fileset.of(one) for one in datasets.list_datasets(db) if one.kind is not DatasetKind.INBOX]

        return fsck(self._catalog, self._catalog.read(block))

    @operation(
        Right.ADMIN, no_audit="changes nothing in the catalog", no_route="writes a file of this machine", whole=True
    )
    def backup(self, target: str | Path) -> Written:
        """Copy the catalog into a file, as one moment shows it, while work goes on; data are not in it.

        `target` is a path, or the URL of a new object in a bucket (`s3:`); `FileExists`.
        """
        return write_backup(self._catalog, target)

    @operation(Right.ADMIN, no_route="reads a file of this machine", whole=True)
    def restore(self, backup: str | Path, *, replace: bool = False) -> Restored:
        """Begin a new life of the catalog from a backup; `CatalogInUse` unless it is empty or `replace` is given.

        All else has to be stopped. What the backup does not know as consumed comes again.
        """
        note = self._note("restore", "catalog", backup=str(backup), replace=replace)
        return restore(self._catalog, backup, replace=replace, data=self._config.data, note=note)

    @operation(Right.ADMIN, no_route="is about folders of this machine", whole=True)
    def move(self, old: Path | None = None) -> Moved:
        """Name this project's folder wherever the catalog names `old`, from which the project was moved.

        Without `old`, the one other folder from which apps were deployed. `NotMoved`, `StillRunning`.
        """
        note = self._note("move", "catalog")
        return move(self._catalog, self._config.folder, None if old is None else old.absolute(), note)

    @operation(Right.ADMIN, repeats="a commit that was adopted is known", whole=True)
    def adopt(self) -> Adopted:
        """Publish again the commits of another life of the catalog that this life does not know."""
        return adopt(self._catalog, lambda: self._note("adopt", "catalog"))
