"""The benchmark of a node check, a script that runs in a process of its own.

It times a fixed computation for the CPU and the memory, then a matrix product in the training
container's Python, and runs the job's own command, if any. It writes one line of JSON: `seconds`;
`device` and `device_seconds` of the product, or the end of its `errors`; and the command's exit
`code` and the end of its `output`. It uses only the standard library.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 5
"""The fastest counts: a short disturbance does not make a node unfit."""
_DATA_BYTES = 16 << 20
_OUTPUT_BYTES = 600
_ERROR_BYTES = 8192
_LONGEST_PRODUCT = 15


def main() -> None:
    """Run the benchmark, the product in the given Python, then the command in the arguments.

    The first arguments are the Python, which may be empty, and the seconds for the product.
    """
    python, most_seconds, *command = sys.argv[1:]
    result: dict[str, object] = {"seconds": min(measure() for _ in range(ROUNDS))}
    if python:
        result.update(multiply(python, float(most_seconds)))
    if command:
        result["code"], result["output"] = run(command)
    sys.stdout.write(json.dumps(result) + "\n")


def multiply(python: str, most_seconds: float) -> dict[str, object]:
    """Time a matrix product, with what it imports, within a time.

    The time of imports says nothing about the device. So a product that is late counts only if its
    device does not end it `_LONGEST_PRODUCT` after it was found.
    """
    script = Path(__file__).with_name("matrix_benchmark.py").read_bytes()
    try:
        done = subprocess.run(
            [python, "-", str(_LONGEST_PRODUCT)],
            env=_original_environment(),
            input=script,
            capture_output=True,
            timeout=most_seconds,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    device, _, seconds = done.stdout.decode(errors="replace").strip().partition("\n")
    if done.returncode == -signal.SIGALRM:
        return {"device": device, "device_seconds": _LONGEST_PRODUCT}
    try:
        return {"device": device, "device_seconds": float(seconds)}
    except ValueError:
        return {"errors": done.stderr[-_ERROR_BYTES:].decode(errors="replace")}


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
