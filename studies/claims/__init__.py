"""Every claim of the paper and what our results say of it: confirmed, not confirmed, or cannot be run here."""
