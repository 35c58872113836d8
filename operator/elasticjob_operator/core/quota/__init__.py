"""Quota of Kueue for elastic jobs.

What a job asks for, whether it may have pods, and where they run.
"""
