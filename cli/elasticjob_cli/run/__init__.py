"""`elasticjob run`: master and agents on this machine, without Kubernetes."""
