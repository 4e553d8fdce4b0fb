"""Checks the English of the repository: the words that the style guide replaces by the field's terms."""
