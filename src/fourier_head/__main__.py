"""``python -m fourier_head``, the command ``fourier-head`` where scripts are not on the path."""

from fourier_head.cli import main

if __name__ == "__main__":
    main()
