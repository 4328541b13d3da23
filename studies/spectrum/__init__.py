"""Section 2.3 of the paper: what uniform and mixed bins do to the Fourier spectrum of next tokens."""
