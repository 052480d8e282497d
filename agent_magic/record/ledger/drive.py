"""Whether a file is on a drive of the network, as the system's table of mounts says.

SQLite's write-ahead log keeps its index in memory that processes share. Two machines share none, so on a network drive
each would write over what the other wrote. Trying the log out cannot show that: within one machine it works.
Source: https://sqlite.org/wal.html, "all processes using a database must be on the same host computer".
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

MOUNTS = Path("/proc/self/mounts")
NETWORK = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs",
    "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs",
})  # fmt: skip
"""Kinds of file systems that several machines may have open, as Linux names them."""
_OCTAL = re.compile(r"\\([0-7]{3})")


def network_drive(path: Path) -> str:
    """Return the kind of the network drive that holds a file, such as `nfs4`, or an empty string for a local disk.

    Only Linux has the table; a share of Windows is known by its name. Elsewhere nothing is known, and the string empty.

    Args:
        path: The file, absolute and with its links followed. It need not exist.
    """
    if path.drive.startswith("\\\\"):
        return "a share"
    try:
        table = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    return kind if (kind := kind_at(path, table)) in NETWORK else ""


def kind_at(path: Path, table: str) -> str:
    """Return the kind of the file system that holds a path: that of the deepest mount above it, the last one there."""
    found = (-1, "")
    for line in table.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        where = PurePosixPath(_OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[1]))
        if path.is_relative_to(where) and len(where.parts) >= found[0]:
            found = len(where.parts), fields[2]
    return found[1]
