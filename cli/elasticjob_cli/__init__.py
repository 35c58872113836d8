"""The command `elasticjob`.

The embedded cluster, its process node, the demo, and questions to a job's master.
"""
