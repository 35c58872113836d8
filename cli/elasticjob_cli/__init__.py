"""The command `elasticjob`: the embedded cluster, its process node, the demo, and questions to a job's master."""
