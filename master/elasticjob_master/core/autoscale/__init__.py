"""The auto-scaler's rules: how many members a job has, and how much CPU and memory each; see `docs/autoscaling.md`.

`decide.decide` is the entry point. `scaling_memory` has the state kept between decisions, `measurement_window` the
measuring of throughput, `curve` the model fitted to it, and `size_search`, `parameter_servers`, `pending` and
`resource_rules` one rule each.
"""
