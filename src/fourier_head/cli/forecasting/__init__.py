"""What ``fourier-head forecast`` does: files in; tables, fan charts and a page out."""
