"""Monitors read the job at every tick.

Its health, its history, and its throughput for the auto-scaler.
"""
