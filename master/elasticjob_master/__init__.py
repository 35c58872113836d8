"""The master of one elastic training job."""
