"""The stacks of this process' threads, for an agent that may not read its memory.

The thread that reads from the agent looks at the others, so no signal interrupts the program. It
needs the interpreter's lock: code that hangs with the lock held cannot be seen this way.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from itertools import islice
from types import FrameType
from typing import Any

_MOST_FRAMES = 64


def threads() -> dict[str, Any]:
    """Return the frames of the main thread, and the other threads, each with its frames."""
    frames = {ident: _frames(top) for ident, top in sys._current_frames().items()}
    main = frames.pop(threading.main_thread().ident or 0, [])
    named = {thread.ident: thread.name for thread in threading.enumerate()}
    others = [f"{named.get(each, each)}: {' < '.join(of)}" for each, of in frames.items()]
    return {"frames": main, "others": others}


def _frames(top: FrameType) -> list[str]:
    """Return the frames of a thread as py-spy shows them, the innermost one first."""
    found = []
    for frame, line in islice(traceback.walk_stack(top), _MOST_FRAMES):
        file = frame.f_code.co_filename
        folders = [folder for folder in sys.path if folder and file.startswith(folder + os.sep)]
        short = file[len(max(folders, key=len, default="")) :].lstrip(os.sep)
        name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)  # from Python 3.11 on
        found.append(f"{name} ({short}:{line})")
    return found
