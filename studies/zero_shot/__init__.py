"""A zero-shot forecaster beside seasonal naive and the published ones, and what each of its parts is worth."""
