"""`elasticjob run`.

Master and agents on this machine, without Kubernetes, and what other commands do with them.
"""
