"""Ctrl-C while the command is still importing numpy: one line instead of a traceback.

Imported before anything else. In a process that does not run the command it does nothing.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType


def _told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    if sys.stderr is not None:
        print("compcodes: error: interrupted", file=sys.stderr, flush=True)
    os._exit(130)


# `python -m compcodes` has this argv while it looks for the module to run.
_as_module = sys.argv[:1] == ["-m"] and "compcodes" in sys.orig_argv
_as_script = bool(sys.argv) and os.path.basename(sys.argv[0]) in ("compcodes", "compcodes.exe")
if _as_module or _as_script:
    sys.excepthook = _told
