"""The master's side of Kubernetes: its ElasticJob, its ScalePlans, and their conversion to the core's values."""
