"""The worker's side: `elasticjob-agent run -- CMD` is the container's process and keeps CMD in step with the job."""

VERSION = "0.1.0"
LIBRARY = "library"
"""Where an installed agent keeps what a training process imports, in its directory."""
