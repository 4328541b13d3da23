"""Every formula, as pure functions of real tensors."""
