"""Defines the data of decisions.

The observed state of a job, the actions, and the types of a plan.
"""
