"""A zero-shot forecaster beside seasonal naive and the published ones."""
