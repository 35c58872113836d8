"""The auto-scaler's rules: how many members a job has, and how much CPU and memory each.

See `docs/autoscaling.md`. `decide.decide` is the entry point. `scaling_memory` has the state kept
between decisions, `measurement_window` the measuring of throughput, and `curve` the model fitted to
it. The rules have a file each: `size_search`, which begins with `climb` and plans its `moves`,
`parameter_servers`, `pending`, `lowering` and `resource_rules`. `belief` and `outcomes` say to
people what is known; no decision follows from them.
"""
