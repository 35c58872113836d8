#!/usr/bin/env bash
# WebDataset merges samples whose names differ only after a dot, and reports nothing.
# Its documentation says that the key ends at the first dot of the base name.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check webdataset==1.0.2
venv/bin/python - 2> log <<'PY' || { tail -5 log; exit 1; }
import io
import sys
import tarfile
from importlib.metadata import version

import webdataset


def shard(path, names):
    with tarfile.open(path, "w") as archive:
        for name in names:
            for kind in ("txt", "cls"):
                data = name.encode()
                member = tarfile.TarInfo(f"{name}.{kind}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


def count(path):
    samples = list(webdataset.WebDataset(path, shardshuffle=False))
    return len(samples), [key for key in samples[0] if not key.startswith("__")]


shard("plain.tar", ["clip-1s", "clip-2s", "clip-3s"])
shard("dotted.tar", ["clip-1.5s", "clip-1.6s", "clip-1.7s"])
plain, dotted = count("plain.tar"), count("dotted.tar")
print(f"webdataset {version('webdataset')}: two shards of three samples, each a .txt and a .cls")
print("Expected: three samples each; the extension is what follows the last dot.")
print(f"Seen: names without dots: {plain[0]} samples, fields {plain[1]}")
print(f"Seen: clip-1.5s, clip-1.6s, clip-1.7s: {dotted[0]} sample, fields {dotted[1]}")
print("A ledger that counts samples by the index of the archive never agrees with what the workers trained.")
if plain[0] != 3 or dotted[0] != 1:
    sys.exit("Changed: names with dots are kept apart.")
PY
