"""The worker's side.

`elasticjob-agent run -- CMD` is the container's process and keeps CMD in step with the job.
"""

VERSION = "0.1.0"
LIBRARY = "library"
"""The folder of an installed agent with the packages that a training process imports."""
