"""Probabilistic forecasting: corpora to train on, tokenizer and models, training, evaluation."""
