"""What watches the job from tick to tick: its health, its history, and its throughput for the auto-scaler."""
