"""A master that reaches the API server as it does in a pod, with the service account's files in a folder of ours.

`python -m bench.in_pod FOLDER [OPTION ...]` runs it; in a real pod their place is fixed.
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
