"""The runc engine."""
