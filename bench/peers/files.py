"""Makes the files that contenders read instead of, or beside, the pictures.

In: a contender and its task. Out: its work folder, filled once for the same pictures; how large it is against them.
Always true: a work folder whose stamp agrees with its task is complete. Nothing here is timed.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from bench.harness import ContenderFailed, reason
from bench.peers.contenders import CONVERT
from bench.peers.peer import Peer
from bench.pipeline import Task

WORK = Path(__file__).parent.parent.parent / "bench-work"
CONVERT_LIMIT_SECONDS = 1800


def work_folder(pictures: Path) -> Path:
    """Where contenders keep what they make of these pictures, each in a folder of its name."""
    return WORK / pictures.resolve().name


def convert(peer: Peer, task: Task, python: str) -> None:
    """Fills the contender's work folder unless it is filled already; Feedline's own is made anew each time."""
    folder = task.within(peer.name).work
    folder.mkdir(parents=True, exist_ok=True)
    if peer.convert is None:
        return
    stamp = folder.with_suffix(".complete")
    content = f"{peer.environment} {_code()} {task.fingerprint}"
    if peer.environment and stamp.exists() and stamp.read_text() == content:
        return
    stamp.unlink(missing_ok=True)
    shutil.rmtree(folder)
    folder.mkdir()
    print(f"  preparing {peer.name}", file=sys.stderr)
    command = [python, "-m", "bench.contender", CONVERT + peer.name, *task.arguments]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=CONVERT_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise ContenderFailed(f"files not made within {CONVERT_LIMIT_SECONDS} s") from None
    if ended.returncode:
        raise ContenderFailed(reason(ended.stderr) or f"making its files ended with code {ended.returncode}")
    stamp.write_text(content)


def _code() -> str:
    """Changes with the code that makes the files."""
    return hashlib.sha256(
        b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    ).hexdigest()


def storage_ratio(peer: Peer, task: Task) -> float | None:
    """Bytes of the contender's own files over those of the pictures; None if it made none."""
    made = sum(path.stat().st_size for path in task.within(peer.name).work.rglob("*") if path.is_file())
    copies = task.all_epochs if peer.writes_every_epoch else 1
    return made / copies / task.bytes if made else None
