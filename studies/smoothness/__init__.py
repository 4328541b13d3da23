"""Appendix B: the smoothness metric on square waves and noise."""
