"""The master's side of Kubernetes.

Its ElasticJob, its ScalePlans, and their conversion to the core's values.
"""
