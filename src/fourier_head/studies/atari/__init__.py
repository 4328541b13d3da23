"""Section 5 of the paper: Decision Transformers on four Atari games, with a linear and with a Fourier head."""
