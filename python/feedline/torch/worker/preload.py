"""What the fork server imports, once for all workers, and a spawned worker for itself: torch and the code of a worker.

The cyclic garbage collector is off meanwhile. Importing torch makes very many objects that stay, and looking at them
again and again takes a tenth of the time or more. Afterwards they are frozen, so that collections in workers do not
touch them, and the workers keep sharing their pages.
"""

from __future__ import annotations

import gc
import importlib

_was_enabled = gc.isenabled()
gc.disable()
try:
    importlib.import_module("feedline.torch.worker.main")
finally:
    gc.freeze()
    if _was_enabled:
        gc.enable()
