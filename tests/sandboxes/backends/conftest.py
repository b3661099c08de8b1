"""The contract suite's fixtures, for every backend's tests."""

from sandboxes.testing.fixtures import box, leftovers, outside, sandbox

__all__ = ["box", "leftovers", "outside", "sandbox"]
