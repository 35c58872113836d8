"""Installs Python packages with pip, in a container that runs before the training's.

The text of this file is an argument of that container, which has no other file of this package. It
runs with Python 3.8 and newer, and imports only the standard library.

Packages that the image has are used, and others are installed into a folder whose name is a digest
of the requirements and the image's packages. A folder with such a name is complete: pods that
install at once work in folders of their own, and the first one that is ready gives its folder the
name.
"""

import hashlib
import importlib.util
import platform
import shutil
import site
import subprocess
import sys
import tempfile
import time
import venv
from importlib import metadata
from pathlib import Path

_ABANDONED_SECONDS = 86_400
"""No installation takes longer; a killed one leaves its folder on the volume."""
_UNFINISHED = "new-"


def main(link: str, folder: str, pip_cache: str, *requirements: str) -> int:
    """Install the requirements; return the exit code.

    Args:
        link: becomes a link to the folder with the packages.
        folder: contains the folders of all installed requirements.
        pip_cache: the folder for what pip has downloaded; empty: it keeps nothing.
        requirements: lines of a requirements file.
    """
    if importlib.util.find_spec("pip") is None:
        print(f"{sys.executable} has no pip: use an image with pip", file=sys.stderr)  # noqa: T201
        return 1
    wanted = "\n".join(requirements)
    present = sorted(f"{each.metadata['Name']} {each.version}" for each in metadata.distributions())
    of_image = [sys.version, sys.executable, platform.machine(), *present]
    digest = hashlib.sha256("\n".join([wanted, *of_image]).encode()).hexdigest()[:32]
    Path(folder).mkdir(parents=True, exist_ok=True)
    _remove_abandoned(Path(folder))
    packages = Path(folder, digest)
    if not packages.is_dir():
        name = f"{_UNFINISHED}{int(time.time())}-"
        with tempfile.TemporaryDirectory(prefix=name, dir=folder) as unfinished:
            code = _install(wanted, packages, Path(unfinished), pip_cache)
        if code:
            return code
    if Path(link).is_symlink():  # of an earlier container of this pod
        Path(link).unlink()
    Path(link).symlink_to(packages)
    return 0


def _install(wanted: str, packages: Path, unfinished: Path, pip_cache: str) -> int:
    """Install into an environment above the present one, and move its packages to their place."""
    venv.create(unfinished / "env", symlinks=True)
    (found,) = (unfinished / "env").glob("lib/python*/site-packages")
    below = found / "below.pth"
    folders = site.getsitepackages()
    folders += [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    below.write_text("".join(f"import site; site.addsitedir({each!r})\n" for each in folders))
    (unfinished / "requirements.txt").write_text(wanted)
    cache = ["--cache-dir", pip_cache] if pip_cache else ["--no-cache-dir"]
    pip = [str(unfinished / "env/bin/python"), "-m", "pip", "--disable-pip-version-check"]
    options = ["--no-input", "--requirement", str(unfinished / "requirements.txt")]
    code = subprocess.call([*pip, *cache, "install", *options])
    if code:
        return code
    below.unlink()
    try:
        found.rename(packages)
    except OSError:
        if not packages.is_dir():  # otherwise another pod was the first one
            raise
    return 0


def _remove_abandoned(folder: Path) -> None:
    for each in folder.glob(f"{_UNFINISHED}*"):
        began = each.name.split("-")[1]
        if began.isdigit() and int(began) < time.time() - _ABANDONED_SECONDS:
            shutil.rmtree(each, ignore_errors=True)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
