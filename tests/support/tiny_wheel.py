"""Makes a wheel for tests of pip, which needs neither a package index nor a build."""

from __future__ import annotations

import zipfile
from pathlib import Path

_FILES = {
    "tiny.py": "WORD = 'tiny'\n",
    "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
    "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "tiny-1.0.dist-info/RECORD": "",
}


def tiny_wheel(folder: Path) -> Path:
    """Write the wheel of the module `tiny`, and return its path."""
    path = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in _FILES.items():
            wheel.writestr(name, text)
    return path
