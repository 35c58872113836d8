"""`elasticjob dev`: the embedded cluster, and a demo that trains an elastic job on it."""
