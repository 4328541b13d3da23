"""Series to train forecasters on: stores and readers of real ones, generators of artificial ones, and their mixture.

Everything a batch needs is drawn on the device that trains, from one `torch.Generator`:

    store = read_store("train/").to("cuda")                      # or SeriesStore.load("corpus.safetensors", "cuda")
    corpus = standard_corpus(store, context=512, horizon=64)     # real, coarser, mixed, KernelSynth, structural
    for windows in BatchStream(corpus, batch=1024, seed=0): ...  # windows.context, windows.future, windows.period
"""

from fourier_head.forecasting.corpora.aggregate import AggregatedSampler
from fourier_head.forecasting.corpora.augment import Augmentation
from fourier_head.forecasting.corpora.kernel_synth import CHRONOS_BANK, WIDE_BANK, Kernel, SpectralSynth
from fourier_head.forecasting.corpora.mix import RECIPES, BatchStream, Corpus, Part, standard_corpus
from fourier_head.forecasting.corpora.mixup import Source, TSMixup
from fourier_head.forecasting.corpora.readers import join, read_hub, read_store
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.corpora.synthetic import StructuralSynth
from fourier_head.forecasting.corpora.windows import Windows, WindowSampler

__all__ = [
    "CHRONOS_BANK",
    "RECIPES",
    "WIDE_BANK",
    "AggregatedSampler",
    "Augmentation",
    "BatchStream",
    "Corpus",
    "Kernel",
    "Part",
    "SeriesStore",
    "Source",
    "SpectralSynth",
    "StructuralSynth",
    "TSMixup",
    "WindowSampler",
    "Windows",
    "join",
    "read_hub",
    "read_store",
    "standard_corpus",
]
