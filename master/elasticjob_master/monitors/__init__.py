"""What watches the job from tick to tick.

Its health, its history, and its throughput for the auto-scaler.
"""
