"""File systems of folders, by the mount table of this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

NETWORK: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "afs"})
"""Kinds of file systems on which locks of one machine do not hold for another."""
_OF_SEVERAL_MACHINES: Final = NETWORK | {
    "autofs",
    "ceph",
    "lustre",
    "gpfs",
    "beegfs",
    "ocfs2",
    "gfs2",
    "orangefs",
    "wekafs",
    "panfs",
    "virtiofs",
    "vboxsf",
    "vmhgfs",
    "prl_fs",
    "afpfs",
    "webdav",
    "macfuse",
}


def file_systems_of(path: Path) -> list[str]:
    """Return the kinds of file systems, such as `ext4` or `nfs4`: first the one that has the path, if that is known.

    Those that are mounted below the path follow. Links are followed. Nothing need be at the path. Cost: reads the mount
    table.
    """
    # Only a catalog in a file and watched folders ask, and the import takes 10 ms.
    import psutil

    kinds = {Path(mount.mountpoint): mount.fstype for mount in psutil.disk_partitions(all=True)}
    place = Path(os.path.realpath(path))  # `Path.resolve` raises an error on a loop of links
    above = next((kinds[one] for one in (place, *place.parents) if one in kinds), None)
    return [*([] if above is None else [above]), *(kind for one, kind in kinds.items() if place in one.parents)]


def reports_all(kind: str) -> bool:
    """Return whether a file system of this kind reports each change to this machine.

    Where other machines write too, only changes of this machine are reported. A file system in user space may be such a
    one (s3fs, sshfs, GlusterFS).
    """
    return kind not in _OF_SEVERAL_MACHINES and not kind.startswith("fuse")
