"""The Fourier head: ordered bins, one continuous density."""
