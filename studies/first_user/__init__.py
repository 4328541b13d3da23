"""The forecasts that a first user tries, on made-up series whose truth is known."""
