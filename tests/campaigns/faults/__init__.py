"""tests/campaigns/faults."""
