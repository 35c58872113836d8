"""`elasticjob dev demo`: trains an elastic job on the embedded cluster and checks every step."""
