"""Runs that take long: where they go, and what is kept of those that are finished."""
