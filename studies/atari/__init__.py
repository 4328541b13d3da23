"""Decision Transformers on Atari games: emulator, data from a learning agent, model, training and rollouts.

Everything here speaks one language of actions: the circular order of `games.ACTIONS`, on the way in and on the way
out, for every head. Only `environment` and the readers of foreign files translate.
"""
