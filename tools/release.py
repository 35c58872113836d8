"""Makes the files of a release in dist/VERSION, for `make release VERSION=0.2.0`.

It writes the version into the files that name it, and gives the unreleased changes a section in
CHANGELOG.md. Only files that git knows get into the release. Tools do the work; what no tool of
this machine can make is left out, and the summary says why.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from elasticjob_localcluster.errors import LocalClusterError

from tools.programs import find_helm
from tools.release_images import PLATFORMS, commands, find_builder

ROOT = Path(__file__).parents[1]
CHANGELOG = "CHANGELOG.md"
VERSIONED = (
    ".krew.yaml",
    "README.md",
    "agent/elasticjob_agent/__init__.py",
    "deploy/admission/webhook.yaml",
    "deploy/base/operator.yaml",
    "deploy/chart/Chart.yaml",
    "deploy/kueue/rights.yaml",
    "deploy/namespaced/operator.yaml",
    "docs/install.md",
    "docs/tutorials/cluster.md",
    "operator/elasticjob_operator/config.py",
    "tests/integration/test_deploy_install.py",
    "pyproject.toml",
)
"""The files that name the version. The last one tells the present version to a repeated run."""
_UV = (sys.executable, "-m", "uv")


def main() -> None:
    """Make the release; exit with 1 if a step fails that was not left out."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("version", help="VERSION: three numbers, such as 0.2.0")
    parser.add_argument("--url", default="", help="address of the folder with the release's files")
    parser.add_argument("--registry", default="", help="push the images to it")
    parser.add_argument("--images", choices=("yes", "no"), default="yes")
    asked = parser.parse_args()
    if not re.fullmatch(r"\d+\.\d+\.\d+", asked.version):
        sys.exit(f"VERSION is {asked.version!r}: give three numbers, such as VERSION=0.2.0")
    _refuse_other_changes()
    seconds, date, revision = _git("log", "-1", "--format=%ct %cs %H").split()
    os.environ |= {"SOURCE_DATE_EPOCH": seconds, "VERSION": asked.version, "REVISION": revision}
    write_version(asked.version, date)
    dist = ROOT / "dist" / asked.version
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="elasticjob-release-") as folder:
        source = Path(folder)
        _export(source)
        steps: dict[str, Callable[[], object]] = {
            "wheel and source distribution": lambda: _packages(source, dist),
            "chart": lambda: _chart(source, dist),
            "kubectl plugin": lambda: _plugin(asked.version, source, dist, asked.url),
            "lists of packages": lambda: _sboms(asked.version, source, dist),
        }
        left_out = [] if asked.url else ["address of the plugin in its manifest: no URL is given"]
        builder, platforms = find_builder() if asked.images == "yes" else ("", [])
        if builder:
            tags = f"{asked.registry or 'localhost'}/elasticjob-{{}}:{asked.version}"
            archives = None if asked.registry else dist
            images = commands(builder, platforms, tags, source, archives)
            steps["images"] = lambda: [subprocess.run(each, check=True) for each in images]
            missing = [each for each in PLATFORMS if each not in platforms]
            left_out += [f"images for {each}: {builder} has no emulator" for each in missing]
        else:
            left_out.append("images: IMAGES=no, or no docker buildx, podman or buildah that runs")
        failed = [name for name, step in steps.items() if not _done(name, step)]
    sums = [f"{_sum(path)}  {path.name}\n" for path in sorted(dist.iterdir())]
    (dist / "SHA256SUMS").write_text("".join(sums))
    made = [f"{each.relative_to(ROOT)}  {each.stat().st_size} bytes" for each in dist.iterdir()]
    summary = [*sorted(made), *(f"left out: {each}" for each in left_out)]
    sys.stdout.write("\n".join(summary) + "\n")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def released(changelog: str, version: str, date: str) -> str:
    """Return the changelog with the unreleased changes in a new version's section."""
    if re.search(rf"^## {re.escape(version)}\b", changelog, re.MULTILINE):
        return changelog
    before, heading, after = changelog.partition("## Unreleased\n")
    if not heading or after.lstrip().startswith("## "):
        sys.exit(f"{CHANGELOG} has no changes below '## Unreleased': describe them there")
    return f"{before}{heading}\n## {version} - {date}\n{after}"


def write_version(version: str, date: str) -> None:
    """Write the version into the files that name it, and its section into the changelog."""
    project = (ROOT / "pyproject.toml").read_text()
    [present] = re.findall(r'^version = "(.+)"$', project, re.MULTILINE)
    changelog = released((ROOT / CHANGELOG).read_text(), version, date)
    for path in VERSIONED:
        file = ROOT / path
        named = re.sub(rf"(?<![\d.]){re.escape(present)}(?![\d.])", version, file.read_text())
        file.write_text(named)
    (ROOT / CHANGELOG).write_text(changelog)


def _refuse_other_changes() -> None:
    """Exit if a file has changes that no commit has, other than those of an earlier run."""
    changed = _git("diff", "--name-only", "HEAD").split()
    if others := sorted(set(changed) - {CHANGELOG, *VERSIONED}):
        sys.exit(f"uncommitted changes in {', '.join(others)}: commit them first")


def _export(source: Path) -> None:
    """Copy the files that git knows."""
    names = _git("ls-files", "-z")
    pack = ["tar", "--create", "--directory", str(ROOT), "--null", "--files-from=-"]
    packed = subprocess.run(pack, input=names.encode(), stdout=subprocess.PIPE, check=True)
    unpack = ["tar", "--extract", "--directory", str(source)]
    subprocess.run(unpack, input=packed.stdout, check=True)


def _packages(source: Path, dist: Path) -> None:
    """Build the source distribution, and from it the wheel."""
    options = ["--no-build-isolation", "--no-create-gitignore", "--python", sys.executable]
    subprocess.run([*_UV, "build", "--quiet", *options, "-o", str(dist), str(source)], check=True)


def _chart(source: Path, dist: Path) -> None:
    helm = find_helm(os.environ)
    command = [str(helm), "package", str(source / "deploy/chart"), "--destination", str(dist)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)  # names each link in it


def _plugin(version: str, source: Path, dist: Path, url: str) -> None:
    """Pack the plugin, and write its manifest with the archive's checksum."""
    archive = dist / f"kubectl-elasticjob-{version}.tar.gz"
    same = [
        f"--mtime=@{os.environ['SOURCE_DATE_EPOCH']}",
        "--owner=0",
        "--group=0",
        "--mode=u=rwX,go=rX",
    ]
    pack = ["tar", "--create", "--use-compress-program=gzip -n", "--file", str(archive)]
    pack += [*same, "--numeric-owner", "--directory", str(source / "deploy/krew")]
    pack += ["kubectl-elasticjob", "--directory", str(source), "LICENSE"]
    subprocess.run(pack, check=True)
    address = f"{url.rstrip('/')}/{archive.name}".lstrip("/")
    found = f"      uri: {address}\n      sha256: {_sum(archive)}\n      files:\n"
    manifest = (source / ".krew.yaml").read_text().replace("      files:\n", found)
    (dist / "elasticjob.yaml").write_text(manifest)


def _sboms(version: str, source: Path, dist: Path) -> None:
    """List the Python packages of each image in CycloneDX's format."""
    locked = ["--with-requirements", str(source / "locks/release.txt")]
    for name in ("operator", "master"):
        command = [*_UV, "run", "--quiet", "--no-project", "--isolated", *locked]
        command += ["cyclonedx-py", "requirements", str(source / f"locks/{name}.txt")]
        command += [
            "--pyproject",
            str(source / "pyproject.toml"),
            "--output-reproducible",
            "--no-validate",
        ]
        subprocess.run(
            [*command, "-o", str(dist / f"elasticjob-{name}-{version}.cdx.json")],
            check=True,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )


def _sum(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _done(name: str, step: Callable[[], object]) -> bool:
    """Do a step; return whether it succeeded."""
    try:
        step()
    except (subprocess.CalledProcessError, LocalClusterError) as error:
        sys.stderr.write(f"{name}: {error}\n")
        return False
    return True


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
