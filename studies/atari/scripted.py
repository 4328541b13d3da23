"""A player of DoubleDunk that is a script: it reads the console's memory and has learned nothing.

The other recordings are of agents that learned (PQN); on DoubleDunk that agent never came above random play. This
player was written by hand from what the 128 bytes of memory mean, its few numbers were found by trying them out, and
it improves over a recording only because its share of random play falls. Whoever reads results on it must know that.

What it knows of the game:

- **The count of frames (mod 256) decides about shots and steals.** Let go at the end of the jump, nearly every shot
  goes in where the count is 8 to 62, from wherever, and none from 160 to 255; men are robbed in the lower half. As the
  game waits until a play is chosen, waiting for the right count and jumping at once is a shot that goes in. At step t
  of a game the count is 22 + 4 t + idle frames (0 to 29), and the labels OFF and DEF are dark while it is 18 to 33, mod
  64: who does not read memory can tell it from both together, and from neither alone.
- On defence the same waiting lets the others shoot when their shots miss. A guard a little to the hoop's side of the
  man with the ball, who keeps pressing the button, wins it back.
- Then the ball must be cleared: to the nearest side line. A man who keeps running is hardly ever robbed, so he runs
  round the court until the count is right, and shoots.

How the bytes were found: all of them over random games against the signs of rewards (the bit of possession has a
correlation of -1), against where the players are on the screen, and against shots, by playing thousands of possessions
from saved states with moves drawn at random.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fourier_head._files import write_atomically
from fourier_head.commands import Options, option
from fourier_head.errors import UserError, needing
from studies.atari.collection import QUALITY, measure_quality
from studies.atari.environment import SEEDS
from studies.atari.games import ACTIONS, TO_EMULATOR, find_game
from studies.atari.recording import RECIPE, About, Shard, write_recipe

GAME, SOURCE = "double_dunk", "script"
NUMBER = {name: number for number, name in enumerate(ACTIONS)}
FIRST_SHOT = ACTIONS.index("LEFTFIRE")
"""Of the actions from here on the button is part."""

# --- what is where in memory, by the number of the byte (its address is 128 more)

POSSESSION = 1
OUTSIDE, THEIRS = 0x80, 0x40
"""Bits of it: the small man of the team has the ball (not the big one); that team is the other one."""
FLIGHT = 2
GOOD, MISSED, WE_JUMP = 0x80, 0x40, 0x02
"""Bits of it: a shot is in the air and will go in, or will not; our man at the ball has left the ground."""
COUNT = 3
"""Frames since the console was switched on, mod 256."""
CHOICE = 7
CHOOSING = 0x80
"""A bit of it: the game waits until we choose a play."""
MESSAGE = 13
CLEAR_THE_BALL = 0x50
"""What it shows while the ball, just won, must be taken to a line before a shot."""
JUMP, Y, X = 29, 33, 37
"""The first of four bytes each: our big man, their big man, our small man, their small man.

The upper three bits of the first tell how far a jump is, 1 to 7, and 0 on the ground. Y grows towards the hoop, whose
line is at 107; X goes from 8 to 120.
"""
HOOP = (118, 66)


@dataclass(frozen=True)
class Script:
    """The numbers of the script, found by playing possessions from saved states of other games than those reported.

    Args:
        attack, defence: counts of frames, first and last, at which a play is chosen; at these the label goes dark.
        shot: counts at which a man with a live ball begins his jump.
        release: how far the jump is, of 7, when he lets go.
        between: steps from the man with the ball towards the hoop where his guard stands.
        near: how far off is near enough for the guard.
        lap: where a man with a live ball runs while he waits, in turn.
    """

    attack: tuple[int, int] = (208, 220)
    defence: tuple[int, int] = (16, 28)
    play: str = "DOWNFIRE"
    shot: tuple[int, int] = (210, 232)
    release: int = 7
    between: int = 4
    near: int = 3
    lap: tuple[tuple[int, int], ...] = ((14, 66), (60, 118), (98, 66), (60, 14))


class Player:
    """Plays one game after another from what it reads in memory."""

    def __init__(self, script: Script | None = None):
        self.script = script or Script()
        self.start()

    def start(self) -> None:
        """Forget the game before."""
        self._since = 99  # steps since a play was chosen
        self._corner: int | None = None

    def act(self, memory: np.ndarray, before: int) -> int:
        """Return the action, as a number of ``ACTIONS``, after the bytes of memory and the action before."""
        return NUMBER[self._act([int(byte) for byte in memory], before >= FIRST_SHOT)]

    def _act(self, memory: list[int], pressed: bool) -> str:
        script, theirs = self.script, bool(memory[POSSESSION] & THEIRS)
        small = 2 if memory[POSSESSION] & OUTSIDE else 0
        self._since += 1
        if memory[CHOICE] & CHOOSING or theirs or memory[MESSAGE] == CLEAR_THE_BALL:
            self._corner = None
        if memory[CHOICE] & CHOOSING:
            if pressed or not _within(memory[COUNT], script.defence if theirs else script.attack):
                return "NOOP"
            self._since = 0
            return script.play
        if memory[FLIGHT] & (GOOD | MISSED):  # for the rebound
            return _towards(memory, small, (105, HOOP[1]), 2)
        return self._defend(memory, small, pressed) if theirs else self._attack(memory, small, pressed)

    def _attack(self, memory: list[int], man: int, pressed: bool) -> str:
        script, y, x = self.script, memory[Y + man], memory[X + man]
        if memory[FLIGHT] & WE_JUMP:
            return _press("NOOP", pressed) if memory[JUMP + man] >> 5 >= script.release else "NOOP"
        if self._since < 12:  # the play was just chosen: a jump shot at once
            return _press("DOWN", pressed) if self._since >= 2 else "NOOP"
        if memory[MESSAGE] == CLEAR_THE_BALL:
            return "LEFT" if x < HOOP[1] else "RIGHT"
        if _within(memory[COUNT], script.shot):
            return _press("DOWN", pressed)
        away = [abs(y - corner[0]) + abs(x - corner[1]) for corner in script.lap]
        if self._corner is None:
            self._corner = int(np.argmin(away))
        elif away[self._corner] < 8:
            self._corner = (self._corner + 1) % len(script.lap)
        return _towards(memory, man, script.lap[self._corner], 1)

    def _defend(self, memory: list[int], man: int, pressed: bool) -> str:
        y, x = memory[Y + man + 1], memory[X + man + 1]  # of the man with the ball
        share = self.script.between / max(1.0, float(np.hypot(HOOP[0] - y, HOOP[1] - x)))
        place = (y + share * (HOOP[0] - y), x + share * (HOOP[1] - x))
        return _press(_towards(memory, man, place, self.script.near), pressed)


def _within(count: int, window: tuple[int, int]) -> bool:
    return (count - window[0]) % 256 <= (window[1] - window[0]) % 256


def _press(way: str, pressed: bool) -> str:
    """Return a move with the button; only going down counts, so it is let go where it was pressed before."""
    if pressed:
        return way
    return "FIRE" if way == "NOOP" else f"{way}FIRE"


def _towards(memory: list[int], man: int, place: tuple[float, float], near: int) -> str:
    up, right = place[0] - memory[Y + man], place[1] - memory[X + man]
    vertical = "UP" if up > near else "DOWN" if up < -near else ""
    horizontal = "RIGHT" if right > near else "LEFT" if right < -near else ""
    return vertical + horizontal or "NOOP"


class Console:
    """One emulator whose memory can be read, else as one of `Environments`: same seeds and actions, same game.

    The vector environment hides the memory of its emulators, so this does what it does: the seed goes to the emulator
    and to a Mersenne twister, from which every episode draws its idle frames as ``uniform_int_distribution(0, 29)`` of
    GNU's C++ does. That the two are the same is checked whenever a recording is played again.
    """

    IDLE = 30

    def __init__(self, seed: int, max_frames: int = 108_000):
        with needing("atari"):
            from ale_py import Action, ALEInterface, LoggerMode, roms
        ALEInterface.setLoggerMode(LoggerMode.Error)
        self._emulator: Any = ALEInterface()
        self._emulator.setInt("random_seed", seed)
        self._emulator.setFloat("repeat_action_probability", 0.0)
        self._emulator.loadROM(roms.get_rom_path(GAME))  # type: ignore[arg-type]
        self._actions = [Action(number) for number in TO_EMULATOR]
        self._dice = np.random.RandomState(seed)  # the twister of C++
        self._most = -(-max_frames // 4)
        self.reset()

    def reset(self) -> None:
        """Begin an episode."""
        self._emulator.reset_game()
        width = 2**32 // self.IDLE
        while (idle := int.from_bytes(self._dice.bytes(4), "little") // width) >= self.IDLE:
            pass
        for _ in range(idle):
            self._emulator.act(self._actions[0])
        self._steps = 0

    @property
    def memory(self) -> np.ndarray:
        """The 128 bytes."""
        return self._emulator.getRAM()

    def step(self, action: int) -> tuple[int, bool]:
        """Take an action for four frames; return the reward and whether the episode ended: the next began."""
        reward = sum(self._emulator.act(self._actions[action]) for _ in range(4))
        self._steps += 1
        ended = bool(self._emulator.game_over()) or self._steps >= self._most
        if ended:
            self.reset()
        return int(reward), ended


class Mixed:
    """The player with a share of random actions.

    A part of them is strewn evenly, so that no two games are the same. The rest comes as whole possessions, played at
    random from one choice of a play to the next: strewn in larger numbers, random actions would spoil every shot.
    """

    STREWN = 0.05

    def __init__(self, dice: np.random.Generator, script: Script | None = None):
        self.player, self.dice = Player(script), dice
        self.start(1.0)

    def start(self, share: float) -> None:
        """Begin an episode."""
        self.player.start()
        self._before, self._chose = 0, False
        self._draw(share)

    def _draw(self, share: float) -> None:
        """Choose who plays until the next choice of a play."""
        self._random = bool(self.dice.random() < (share - self.STREWN) / (1 - self.STREWN))

    def act(self, memory: np.ndarray, share: float) -> int:
        """Return an action, at the given share of random ones."""
        choosing = bool(memory[CHOICE] & CHOOSING)
        if choosing and not self._chose:
            self._draw(share)
        self._chose = choosing
        action = self.player.act(memory, self._before)
        if self._random or self.dice.random() < min(share, self.STREWN):
            action = int(self.dice.integers(len(ACTIONS)))
        self._before = action
        return action


class Games(NamedTuple):
    """Whole games: points made by us and by the others, and steps."""

    ours: np.ndarray
    theirs: np.ndarray
    lengths: np.ndarray

    def measures(self) -> dict[str, float]:
        """Return means, with the standard error of the return."""
        returns = self.ours - self.theirs
        return {
            "games": len(returns),
            "mean": round(float(returns.mean()), 2),
            "error": round(float(returns.std(ddof=1) / len(returns) ** 0.5), 2) if len(returns) > 1 else 0.0,
            "points_for": round(float(self.ours.mean()), 2),
            "points_against": round(float(self.theirs.mean()), 2),
            "length": round(float(self.lengths.mean())),
            "won": int((returns > 0).sum()),
        }


def play_games(seeds: Iterable[int], share: float, max_frames: int = 108_000) -> Games:
    """Play one game for every seed, with a share of random actions: 0 is the script alone, 1 random play."""
    rows = []
    for seed in seeds:
        console, mixed = Console(seed, max_frames), Mixed(np.random.default_rng(seed))
        mixed.start(share)
        ours = theirs = steps = 0
        ended = False
        while not ended:
            reward, ended = console.step(mixed.act(console.memory, share))
            ours, theirs, steps = ours + max(reward, 0), theirs + max(-reward, 0), steps + 1
        rows.append((ours, theirs, steps))
    return Games(*np.array(rows, dtype=np.int64).T)


@dataclass(frozen=True, kw_only=True)
class ScriptSettings(Options):
    """What to record of the script; fields with words are options of the command."""

    game: str = option(MISSING, "double_dunk: no other game has a script.", argument=True)
    output: Path | None = option(None, "Folder of the recording.", "--output", "-o", shown="scratch/atari/GAME")
    transitions: int = option(500_000, "To record.", low=1)
    environments: int = option(10, "Games side by side, each from the first share of random play to the last.", low=1)
    last: float = option(0.05, "Share of random actions in the end; it falls evenly from 1.", low=0, high=1)
    games: int = option(64, "Fresh games to measure the script, its last mixture and random play.", low=0)
    seed: int = option(0, "Of everything.", low=0)
    shard: int = option(20_000, "Transitions of a shard.", low=1)
    max_frames: int = 108_000
    """Emulator frames after which an episode is cut."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "game", find_game(self.game).name)
        if self.game != GAME:
            raise UserError(f"only {GAME} has a script, got {self.game}; record agents with collect.")

    @property
    def folder(self) -> Path:
        """Of the recording."""
        return self.output or Path("scratch/atari") / self.game

    @property
    def identity(self) -> dict[str, Any]:
        """What the recording follows from."""
        return json.loads(json.dumps({k: v for k, v in asdict(self).items() if k != "output"}))


Progress = Callable[[float, str], None]


def record(settings: ScriptSettings, report: Progress | None = None) -> dict[str, Any]:
    """Play and write a recording as `Collection` does: recipe.npz and quality.json, whose content is returned."""
    if (settings.folder / RECIPE).exists():
        raise UserError(f"{settings.folder} holds a recording; choose another folder.")
    begin = time.monotonic()
    count = settings.environments
    length = -(-settings.transitions // count)
    seeds = (settings.seed * 1_000_003 + np.arange(count)) % SEEDS
    streams, episodes = [], []
    for number, seed in enumerate(seeds.tolist()):
        columns, found = _stream(settings, seed, length)
        streams.append(columns)
        episodes += [(step * count, score, steps) for step, score, steps in found]
        if report is not None:
            recent = np.mean([score for _, score, _ in found[-5:]]) if found else float("nan")
            report((number + 1) / count, f"{(number + 1) * length} transitions, last returns {recent:.1f}")
    actions, rewards, ended = (np.stack(column) for column in zip(*streams, strict=True))
    seconds = time.monotonic() - begin
    about = About(settings.game, max_frames=settings.max_frames, source=SOURCE)
    each = max(1, settings.shard // count)
    shards = [
        Shard(actions[:, part], rewards[:, part], ended[:, part], seeds, not part.start, part.start * count, count)
        for part in (slice(t, t + each) for t in range(0, length, each))
    ]
    quality = measure_quality(about, shards, sorted(episodes), length * count, seconds)
    quality |= {"settings": settings.identity, "script": asdict(Script())}
    quality["play"] = _measure(settings, report) if settings.games else None
    settings.folder.mkdir(parents=True, exist_ok=True)
    write_recipe(settings.folder / RECIPE, about, shards)
    write_atomically(settings.folder / QUALITY, json.dumps(quality, indent=1) + "\n")
    return quality


def _stream(
    settings: ScriptSettings, seed: int, length: int
) -> tuple[Sequence[np.ndarray], list[tuple[int, float, int]]]:
    """Return actions, rewards and ends of one environment, and step, return and length of its episodes."""
    console, mixed = Console(seed, settings.max_frames), Mixed(np.random.default_rng([settings.seed, seed]))
    actions, rewards, ended = np.zeros(length, np.uint8), np.zeros(length, np.int32), np.zeros(length, bool)
    shares = np.linspace(1, settings.last, length)
    episodes, first = [], 0
    mixed.start(1.0)
    for t, share in enumerate(shares.tolist()):
        actions[t] = mixed.act(console.memory, share)
        rewards[t], ended[t] = console.step(int(actions[t]))
        if ended[t]:
            episodes.append((t + 1, float(rewards[first : t + 1].sum()), t + 1 - first))
            first = t + 1
            mixed.start(share)
    return (actions, rewards, ended), episodes


def _measure(settings: ScriptSettings, report: Progress | None) -> dict[str, dict[str, float]]:
    """Return figures of the script, of its last mixture and of random play, in games that nothing was chosen by."""
    seeds = [(10**9 + settings.seed * 1_000_003 + number) % SEEDS for number in range(settings.games)]
    out = {}
    for name, share in {"script": 0.0, "last": settings.last, "random": 1.0}.items():
        out[name] = play_games(seeds, share).measures() | {"share": share}
        if report is not None:
            report(1.0, f"{name}: mean return {out[name]['mean']:.1f} ± {out[name]['error']:.1f}")
    return out
