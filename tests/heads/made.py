"""The heads that all tests of heads go through."""

from fourier_head import Bins, Circle, FourierHead, HLGaussHead, Interval, Line, LinearHead, MixtureHead, RegressionHead

MIXED = Bins.mixed(30, -15.0, 15.0, dense=(-1.0, 10.0), sparse_share=0.3)
HEADS = {
    "fourier": lambda: FourierHead(16, 30, 8, init_scale=1.0),
    "fourier exact": lambda: FourierHead(16, 30, 8, bin_mass="exact", init_scale=1.0),
    "fourier walls": lambda: FourierHead(16, 30, 8, boundary="reflect", init_scale=1.0),
    "fourier packets": lambda: FourierHead(16, 30, 8, packets=3, init_scale=1.0),
    "fourier walls packets exact": lambda: FourierHead(16, 30, 8, packets=2, boundary="reflect", bin_mass="exact"),
    "fourier interval": lambda: FourierHead(16, 30, 8, domain=Interval(-3, 7), init_scale=1.0),
    "fourier circle": lambda: FourierHead(16, 30, 8, domain=Circle(24.0), init_scale=1.0),
    "fourier line": lambda: FourierHead(16, 30, 8, domain=Line(), init_scale=1.0),
    "fourier bins": lambda: FourierHead(16, None, 8, domain=MIXED, init_scale=1.0),
    "fourier aliased": lambda: FourierHead(16, 7, 20, init_scale=1.0),
    "fourier no bias": lambda: FourierHead(16, 30, 8, bias=False, init_scale=1.0),
    "linear": lambda: LinearHead(16, 30),
    "linear bins": lambda: LinearHead(16, domain=MIXED),
    "hl-gauss": lambda: HLGaussHead(16, 30, domain=Interval(0, 1)),
    "mixture full": lambda: MixtureHead(16, 30, 3, kind="full"),
    "mixture paper": lambda: MixtureHead(16, 30, kind="paper", domain=Interval(-3, 7)),
    "regression": lambda: RegressionHead(16, 30),
}
ATOMS = {
    "atoms": lambda: FourierHead(16, 30, 8, num_atoms=2, init_scale=1.0),
    "atoms packets exact": lambda: FourierHead(16, 30, 8, num_atoms=2, packets=2, bin_mass="exact"),
}
CROSS_ENTROPY = [k for k in {**HEADS, **ATOMS} if k not in ("hl-gauss", "regression")]
