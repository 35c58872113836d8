"""Names the images of the end-to-end tests' containers.

The embedded cluster, whose node starts processes, ignores them. `.ci/run` builds the images under
these default names.
"""

from __future__ import annotations

import os

OPERATOR = os.environ.get("ELASTICJOB_OPERATOR_IMAGE", "localhost/elasticjob-operator:dev")
"""The operator's image, from Dockerfile.operator, if no operator is deployed."""
MASTER = os.environ.get("ELASTICJOB_MASTER_IMAGE", "localhost/elasticjob-master:dev")
"""The master's image, from Dockerfile.master, for operators that the tests start themselves."""
TRAINER = os.environ.get("ELASTICJOB_TRAINER_IMAGE", MASTER)
"""The image of the tests' own trainings: `python` and `elasticjob-agent` on the PATH."""
DIGITS = os.environ.get("ELASTICJOB_DIGITS_IMAGE", "localhost/elasticjob-digits:dev")
"""The digits example, from examples/digits/Dockerfile."""
PYTHON = os.environ.get("ELASTICJOB_PYTHON_IMAGE", "localhost/python:3.11-slim")
"""Python without this project, as submitted scripts need it."""
PLAIN = os.environ.get("ELASTICJOB_PLAIN_IMAGE", "localhost/busybox:1")
"""Any image with a shell and without our programs."""
EMPTY = os.environ.get("ELASTICJOB_EMPTY_IMAGE", "localhost/pause:1")
"""An image that contains only the static program /pause, as on most clusters' nodes."""
EARLIER_MASTER = os.environ.get("ELASTICJOB_EARLIER_MASTER_IMAGE", "")
"""A master's image of an earlier version for the test of upgrades, which is skipped without it."""
