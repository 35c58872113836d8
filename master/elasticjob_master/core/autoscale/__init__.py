"""The auto-scaler's rules: how many members a job has, and how much CPU and memory each.

See `docs/autoscaling.md`. `decide.decide` is the entry point. `scaling_memory` has the state kept
between decisions, `measurement_window` the measuring of throughput, and `posterior` the model of
it. `size_search` chooses the size; the other rules have a file each: `profile`,
`parameter_servers`, `pending`, `needs` and `resource_rules`. `belief` says to people what is known;
no decision follows from it.
"""
