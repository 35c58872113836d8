"""What the commands share: options, the session with the cluster, output, and formats."""
