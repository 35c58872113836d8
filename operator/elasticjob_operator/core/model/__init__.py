"""What decisions are made of: what is observed, what may be done, and what a plan comes to."""
