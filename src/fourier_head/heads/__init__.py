"""Layers that turn features into a predictive distribution: the Fourier head, and the rivals it must beat."""

from fourier_head.heads.fourier import FourierHead, released_floor
from fourier_head.heads.head import DomainLike, Head, as_domain

__all__ = ["DomainLike", "FourierHead", "Head", "as_domain", "released_floor"]
