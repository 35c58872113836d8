"""The auto-scaler's rules: how many members, and how much CPU and memory for each; see `docs/autoscaling.md`.

`decide` is the entrance; `memory` is what is remembered between two decisions.
"""
