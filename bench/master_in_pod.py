"""Runs a master that reaches the API server as in a pod, with the service account's files in a folder of the caller.

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
