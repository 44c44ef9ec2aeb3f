"""What reading in sequence gains, and what it costs in learning."""
