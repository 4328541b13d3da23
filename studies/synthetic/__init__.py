"""The paper's toy example: learn a known conditional density with every head (section 4.1, appendices C.2 and C.3)."""
