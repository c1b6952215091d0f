"""launch/batch."""
