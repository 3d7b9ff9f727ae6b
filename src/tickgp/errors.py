"""Errors that tell a user what to do."""


class UsageError(ValueError):
    """Something was asked that cannot be: nothing has been done yet."""
