"""Quota of Kueue for elastic jobs: what a job asks for, whether it may have pods, and where they run."""
