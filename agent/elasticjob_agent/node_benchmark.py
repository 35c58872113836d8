"""The work of a node check, run by itself as a new process, so that neither the agent nor its measurements suffer.

Measures a fixed piece of work for the CPU and the memory, then runs the job's own command, if there is one. Writes one
line of JSON: `seconds`, and the command's `code` and last `words`. Standard library only.
"""

import hashlib
import json
import os
import subprocess
import sys
import time

ROUNDS = 5
"""Of which the fastest counts: what disturbs for a moment is no fault of the node."""
_BYTES = 16 << 20
_TAIL = 600


def main() -> None:
    """Work; the command is in the arguments."""
    result: dict[str, object] = {"seconds": min(measure() for _ in range(ROUNDS))}
    if sys.argv[1:]:
        result["code"], result["words"] = run(sys.argv[1:])
    sys.stdout.write(json.dumps(result) + "\n")


def measure() -> float:
    """Return the seconds of one round: hashing for the CPU, copying for the memory."""
    data = bytearray(_BYTES)
    start = time.perf_counter()
    hashlib.sha256(data).digest()
    for _ in range(4):
        data = bytearray(data)
    return time.perf_counter() - start


def run(command: list[str]) -> tuple[int, str]:
    """Run a command; return its exit code as a shell tells it, and its last words, which are passed on too."""
    try:
        process = subprocess.Popen(
            command, env=_given(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        return 127 if isinstance(error, FileNotFoundError) else 126, error.strerror or str(error)
    assert process.stdout is not None
    words = b""
    for line in process.stdout:
        sys.stderr.buffer.write(line)
        words = (words + line)[-_TAIL:]
    code = process.wait()
    sys.stderr.flush()
    return (128 - code if code < 0 else code), words.decode(errors="replace").strip()


def _given() -> dict[str, str]:
    """Return the environment with the names that the agent's launcher has changed as they were."""
    return {f"LD_{name[3:]}" if name.startswith("!D_") else name: value for name, value in os.environ.items()}


if __name__ == "__main__":
    main()
