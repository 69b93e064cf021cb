"""A catalog as a whole, as `Mill` offers it: audit, comparison with storage, backup, restore."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tidemill.catalog.db import Db
from tidemill.lake import datasets
from tidemill.lake.datasets import DatasetKind
from tidemill.lake.fileset.fileset import Fileset
from tidemill.mill.project import Noun
from tidemill.upkeep.audit import Audit, audit
from tidemill.upkeep.backup import Written, write_backup
from tidemill.upkeep.fsck import Fsck, fsck
from tidemill.upkeep.move import Moved, move
from tidemill.upkeep.restore import Adopted, Restored, adopt, restore


class CatalogUpkeep(Noun):
    """Operations on the whole catalog."""

    def audit(self, names: Sequence[str] = ()) -> Audit:
        """Look whether all that was committed was delivered, consumed and announced once; of these data sets, or all.

        Reads the history, in pieces, while work goes on; changes nothing. `NotFound` with the nearest name.
        """
        chosen = self._catalog.read(lambda db: [self._project.dataset(db, name) for name in names]) if names else None
        return audit(self._catalog, chosen)

    def fsck(self, names: Sequence[str] = ()) -> Fsck:
        """Compare manifests with what lies in storage, both ways; of these file sets, or all. `NotFound`."""

        def block(db: Db) -> list[Fileset]:
            if names:
                return [Fileset.of(self._project.dataset(db, name)) for name in names]
            return [Fileset.of(one) for one in datasets.list_datasets(db) if one.kind is not DatasetKind.INBOX]

        return fsck(self._catalog, self._catalog.read(block))

    def backup(self, target: Path) -> Written:
        """Copy the catalog into a file, as one moment shows it, while work goes on; data are not in it."""
        return write_backup(self._catalog, target)

    def restore(self, backup: Path, *, replace: bool = False) -> Restored:
        """Begin a new life of the catalog from a backup; `CatalogInUse` unless it is empty or `replace` is given.

        All else has to be stopped. What the backup does not know as consumed comes again.
        """
        return restore(self._catalog, backup, replace=replace, data=self._config.data)

    def move(self, old: Path | None = None) -> Moved:
        """Name this project's folder wherever the catalog names `old`, from which the project was moved.

        Without `old`, the one other folder from which apps were deployed. `NotMoved`, `StillRunning`.
        """
        return move(self._catalog, self._config.folder, None if old is None else old.absolute())

    def adopt(self) -> Adopted:
        """Publish again what another life of the catalog has committed and this one does not know."""
        return adopt(self._catalog)
