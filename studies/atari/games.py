"""The four games of the paper: names, reference scores, and the circular order of the eighteen actions."""

from __future__ import annotations

from dataclasses import dataclass

from fourier_head.errors import UserError, did_you_mean

COMPASS = ("LEFT", "UPLEFT", "UP", "UPRIGHT", "RIGHT", "DOWNRIGHT", "DOWN", "DOWNLEFT")

ACTIONS = ("NOOP", *COMPASS, *(f"{way}FIRE" for way in COMPASS), "FIRE")
"""The paper's order: nothing, eight moves round the compass, eight shots round it, a plain shot; then nothing again.

>>> len(ACTIONS), ACTIONS[1], ACTIONS[9], ACTIONS[-1]
(18, 'LEFT', 'LEFTFIRE', 'FIRE')
"""

EMULATOR_ACTIONS = (
    *("NOOP", "FIRE", "UP", "RIGHT", "LEFT", "DOWN", "UPRIGHT", "UPLEFT", "DOWNRIGHT", "DOWNLEFT"),
    *("UPFIRE", "RIGHTFIRE", "LEFTFIRE", "DOWNFIRE", "UPRIGHTFIRE", "UPLEFTFIRE", "DOWNRIGHTFIRE", "DOWNLEFTFIRE"),
)
"""The emulator's own order, in which files of other projects store actions."""

TO_EMULATOR = tuple(EMULATOR_ACTIONS.index(name) for name in ACTIONS)
FROM_EMULATOR = tuple(ACTIONS.index(name) for name in EMULATOR_ACTIONS)


@dataclass(frozen=True)
class Game:
    """A game, the scores that normalise its returns, and what the paper's runs asked for and got.

    Args:
        name: as typed on the command line, and the emulator's name of its cartridge.
        title: in print.
        random, human: reference scores of Mnih et al. (2015) as later work on Atari uses them.
        target: return the released code of the paper conditions on.
        linear, fourier: mean and deviation of normalised returns in the paper's table, four seeds at their best epochs.
    """

    name: str
    title: str
    random: float
    human: float
    target: float
    linear: tuple[float, float]
    fourier: tuple[float, float]

    def normalise(self, score: float) -> float:
        """Return a score in percent of the way from random play to a human tester.

        >>> round(find_game("double_dunk").normalise(-17.6), 2)
        45.45
        """
        return 100 * (score - self.random) / (self.human - self.random)


GAMES = {
    game.name: game
    for game in (
        Game("bank_heist", "BankHeist", 14.2, 753.1, 700, (-0.09, 0.05), (0.92, 0.33)),
        Game("double_dunk", "DoubleDunk", -18.6, -16.4, -10, (-72.72, 33.08), (45.45, 36.36)),
        Game("gravitar", "Gravitar", 173.0, 3351.4, 250, (1.32, 0.17), (4.98, 0.93)),
        Game("seaquest", "Seaquest", 68.4, 42054.7, 1150, (2.53, 0.63), (3.70, 0.47)),
    )
}


def find_game(name: str) -> Game:
    """Return a game by its name in any spelling.

    >>> find_game("BankHeist").name
    'bank_heist'
    """
    wanted = _letters(name)
    for game in GAMES.values():
        if _letters(game.name) == wanted:
            return game
    raise UserError(f"no game is called {name}: {did_you_mean(name, GAMES)}")


def _letters(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())
