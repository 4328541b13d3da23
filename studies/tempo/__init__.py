"""Appendix C.1 of the paper: the tempo of metronome-like audio, heard by an Audio Spectrogram Transformer."""
