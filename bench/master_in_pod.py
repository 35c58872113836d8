"""Runs a master that reaches the API server as in a pod.

The service account's files are in a folder that the caller chooses.
`python -m bench.master_in_pod FOLDER [OPTION ...]` runs it; in a real pod the folder is fixed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from elasticjob_kube import access
from elasticjob_master.main import main

if __name__ == "__main__":
    os.environ.pop("KUBECONFIG", None)
    access.SERVICE_ACCOUNT = Path(sys.argv.pop(1))
    main()
