"""What keeps `manage.py up` from starting."""

__all__ = ["CannotStart"]


class CannotStart(Exception):
    """One sentence with the mend in it."""
