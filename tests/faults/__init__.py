"""tests/faults."""
