"""File systems of folders, by the mount table of this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

NETWORK: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "afs"})
"""Kinds of file systems on which locks of one machine do not hold for another."""
_OF_SEVERAL_MACHINES: Final = NETWORK | {"ceph", "lustre", "gpfs", "beegfs", "ocfs2", "gfs2", "virtiofs", "vboxsf"}


def file_system_of(folder: Path) -> str:
    """Return the kind of the file system that has the folder, such as `ext4` or `nfs4`; empty if it is not known.

    Links are followed. The folder need not exist. Cost: reads the mount table.
    """
    # The catalog and the hints alone need it, and the import takes 10 ms.
    import psutil

    kinds = {mount.mountpoint: mount.fstype for mount in psutil.disk_partitions(all=True)}
    place = Path(os.path.realpath(folder))  # not `resolve`: that raises on links that lead nowhere
    return next((kinds[str(one)] for one in (place, *place.parents) if str(one) in kinds), "")


def reports_all(kind: str) -> bool:
    """Return whether a file system of this kind reports each change to this machine.

    Where other machines write too, only changes of this machine are reported. A file system in user space may be one of
    these (s3fs, sshfs, GlusterFS).
    """
    return kind not in _OF_SEVERAL_MACHINES and not kind.startswith("fuse")
