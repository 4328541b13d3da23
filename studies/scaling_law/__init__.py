"""Theorem 3.3: how smoothness falls with the number of frequencies."""
