"""Which process runs a trial, and whether it is still there."""

import os
import socket
from pathlib import Path
from typing import Any

__all__ = ["is_dead", "owner"]


def owner() -> dict[str, Any]:
    """Host, number and beginning of this process; a later one of the same number has another beginning."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())}


def is_dead(stored: Any) -> bool:
    """Whether a process of this host is gone; of other hosts nothing is known, heartbeats tell about them."""
    if not isinstance(stored, dict) or stored.get("host") != socket.gethostname():
        return False
    pid = stored.get("pid")
    return isinstance(pid, int) and _started(pid) != stored.get("started")


def _started(pid: int) -> str | None:
    """Ticks from the boot of the machine to the start of a process; None if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
    except OSError:
        return None
    state, ticks = fields.split()[0], fields.split()[19]
    return None if state == "Z" else ticks
