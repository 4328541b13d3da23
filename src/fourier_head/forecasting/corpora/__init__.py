"""Series to train forecasters on: stores and readers of real ones, generators of artificial ones, and their mixture.

Everything a batch needs is drawn on the device that trains, from one `torch.Generator`:

    store = read_store("train/").to("cuda")                      # or SeriesStore.load("corpus.safetensors", "cuda")
    corpus = standard_corpus(store, context=512, horizon=64)     # real, coarser, mixed, KernelSynth, structural
    for windows in BatchStream(corpus, batch=1024, seed=0): ...  # windows.context, windows.future, windows.period
"""
