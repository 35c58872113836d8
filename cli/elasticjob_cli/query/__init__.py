"""`elasticjob query`, `history`, `stacks` and `top`: ask a job's master and show its answers."""
