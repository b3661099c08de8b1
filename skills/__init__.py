"""Skills: packages, plans, builds and releases. Imports nothing of console."""
