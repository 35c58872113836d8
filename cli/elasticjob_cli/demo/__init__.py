"""`elasticjob dev demo`: trains an elastic job on the embedded cluster and shows that every promise was kept."""
