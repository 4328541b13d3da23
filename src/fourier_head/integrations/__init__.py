"""The Fourier head inside other libraries; each module imports its library where it is used."""
