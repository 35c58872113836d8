"""The commands for jobs: each is a function of its own, on what `elasticjob_client` does."""
