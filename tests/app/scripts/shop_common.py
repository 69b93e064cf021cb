"""Levels of customers, for all scripts of the shop."""

LEVELS = ("bronze", "silver", "gold")


def level_of(total):
    """Return the level of a customer by the revenue of a day."""
    return LEVELS[(total >= 10) + (total >= 100)]
