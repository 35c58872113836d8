"""`elasticjob convert`: jobs of other operators, as ElasticJobs."""
