"""`elasticjob query`: asks a job's master and shows its answers."""
