"""The benchmark of a node check, a script that runs in a process of its own.

It times a fixed computation for the CPU and the memory, then runs the job's own command, if any. It
writes one line of JSON: `seconds`, and the command's exit `code` and the end of its `output`. It
uses only the standard library.
"""

import hashlib
import json
import os
import subprocess
import sys
import time

ROUNDS = 5
"""The fastest counts: a short disturbance does not make a node unfit."""
_DATA_BYTES = 16 << 20
_OUTPUT_BYTES = 600


def main() -> None:
    """Run the benchmark, then the command in the arguments."""
    result: dict[str, object] = {"seconds": min(measure() for _ in range(ROUNDS))}
    if sys.argv[1:]:
        result["code"], result["output"] = run(sys.argv[1:])
    sys.stdout.write(json.dumps(result) + "\n")


def measure() -> float:
    """Return the seconds of one round: hashing for the CPU, copying for the memory."""
    data = bytearray(_DATA_BYTES)
    start = time.perf_counter()
    hashlib.sha256(data).digest()
    for _ in range(4):
        data = bytearray(data)
    return time.perf_counter() - start


def run(command: list[str]) -> tuple[int, str]:
    """Run a command.

    Return its exit code as a shell's, and the end of its output, which is copied to stderr.
    """
    try:
        process = subprocess.Popen(
            command,
            env=_original_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        return 127 if isinstance(error, FileNotFoundError) else 126, error.strerror or str(error)
    assert process.stdout is not None
    output = b""
    for line in process.stdout:
        sys.stderr.buffer.write(line)
        output = (output + line)[-_OUTPUT_BYTES:]
    code = process.wait()
    sys.stderr.flush()
    return (128 - code if code < 0 else code), output.decode(errors="replace").strip()


def _original_environment() -> dict[str, str]:
    """Return the environment with the original names of variables that elf_launcher.py renamed."""
    return {
        f"LD_{name[3:]}" if name.startswith("!D_") else name: value
        for name, value in os.environ.items()
    }


if __name__ == "__main__":
    main()
