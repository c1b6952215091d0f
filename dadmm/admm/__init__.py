"""admm."""
