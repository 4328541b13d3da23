"""Section 6 and appendix D.2: Chronos-style forecasters with linear and Fourier heads at equal budget."""
