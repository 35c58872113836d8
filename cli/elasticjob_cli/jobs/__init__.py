"""The commands for jobs, which call `elasticjob_client`."""
