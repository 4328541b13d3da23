"""The script that plays DoubleDunk: what it does with what it reads, and that its recordings play again."""

import numpy as np
import pytest

pytest.importorskip("ale_py")

from studies.atari import scripted
from studies.atari.collection import recorded_returns
from studies.atari.games import ACTIONS
from studies.atari.recording import RECIPE, load_recording, read_recipe
from studies.atari.scripted import CHOICE, CHOOSING, CLEAR_THE_BALL, THEIRS, WE_JUMP, Mixed, Player

from fourier_head.errors import UserError

pytestmark = pytest.mark.usefixtures("one_thread")


def act(before="NOOP", player=None, **known):
    """Return what the player does where memory holds known bytes, nought elsewhere, and all men are in the middle."""
    memory = np.zeros(128, dtype=np.uint8)
    memory[scripted.Y : scripted.Y + 4], memory[scripted.X : scripted.X + 4] = 60, 66
    for name, value in known.items():
        memory[getattr(scripted, name)] = value
    return ACTIONS[(player or Player()).act(memory, ACTIONS.index(before))]


def test_a_play_is_chosen_at_its_count_and_with_the_button_going_down():
    assert act(CHOICE=CHOOSING, COUNT=100) == "NOOP"
    assert act(CHOICE=CHOOSING, COUNT=210) == "DOWNFIRE"
    assert act(CHOICE=CHOOSING, COUNT=210, before="FIRE") == "NOOP"
    assert act(CHOICE=CHOOSING, COUNT=210, POSSESSION=THEIRS) == "NOOP"
    assert act(CHOICE=CHOOSING, COUNT=18, POSSESSION=THEIRS) == "DOWNFIRE"


def test_after_the_choice_he_jumps_and_lets_go_at_the_end_of_the_jump():
    player = Player()
    act(player=player, CHOICE=CHOOSING, COUNT=210)
    assert act(player=player, before="DOWNFIRE") == "NOOP"
    assert act(player=player) == "DOWNFIRE"
    for stage, before, then in ((6, "NOOP", "NOOP"), (7, "NOOP", "FIRE"), (7, "FIRE", "NOOP")):
        # Nobody has the ball by the bit of the small man, so JUMP is of the big one.
        assert act(before, player, FLIGHT=WE_JUMP, JUMP=stage << 5) == then


def test_a_ball_just_won_is_cleared_to_the_nearest_side_and_then_carried_round():
    assert act(MESSAGE=CLEAR_THE_BALL) == "RIGHT"
    assert act(MESSAGE=CLEAR_THE_BALL, X=40) == "LEFT"  # X is the first byte, of the big man
    player = Player()
    ways = {act(player=player, Y=y, X=x) for y, x in ((14, 66), (60, 118), (98, 66), (60, 14))}
    assert len(ways) == 4
    assert act(COUNT=220) == "DOWNFIRE"


def test_a_guard_stands_on_the_hoops_side_and_presses_every_other_step():
    assert act(POSSESSION=THEIRS) == "UPFIRE"
    assert act(POSSESSION=THEIRS, before="UPFIRE") == "UP"


def test_the_share_of_random_actions_is_the_one_asked_for():
    memory = np.zeros(128, dtype=np.uint8)  # our ball: the script runs up the court
    for share, low, high in ((0.0, 0, 0), (0.05, 0.02, 0.08), (0.5, 0.4, 0.6), (1.0, 0.9, 1.0)):
        mixed = Mixed(np.random.default_rng(0))
        taken = []
        for _ in range(100):
            memory[CHOICE] = CHOOSING
            mixed.act(memory, share)
            memory[CHOICE] = 0
            taken += [mixed.act(memory, share) for _ in range(20)][12:]
        likeliest = np.bincount(taken).max() / len(taken)
        assert low <= 1 - likeliest <= high + 1e-9


def test_the_script_scores_and_leads_where_random_play_is_behind():
    script, random = (scripted.play_games([1, 2], share, max_frames=2000) for share in (0.0, 1.0))
    assert (script.ours >= 4).all()
    assert (script.ours > script.theirs).all()
    assert random.ours.sum() < random.theirs.sum()
    assert (random.lengths == 500).all()
    assert script.measures()["mean"] > 0 > random.measures()["mean"]


@pytest.mark.parametrize(
    ("transitions", "environments", "last", "max_frames", "seed"),
    [(1800, 1, 1.0, 108_000, 2), (400, 2, 0.05, 202, 0)],
    ids=["a whole game", "cut"],
)
def test_a_recording_of_the_script_plays_again(tmp_path, transitions, environments, last, max_frames, seed):
    settings = scripted.ScriptSettings(
        game="DoubleDunk",
        output=tmp_path,
        transitions=transitions,
        environments=environments,
        last=last,
        max_frames=max_frames,
        seed=seed,
        shard=100,
        games=0,
    )
    quality = scripted.record(settings)
    found = load_recording(tmp_path)  # raises where a reward or an end is another
    assert len(found) == transitions
    assert found.about.source == "script"
    assert found.ended.sum() == quality["episodes"] > 0
    assert (np.diff(found.moments[: transitions // environments]) == environments).all()
    _, shards = read_recipe(tmp_path / RECIPE)
    assert len(shards) == transitions // 100
    assert [shard.fresh for shard in shards] == [True] + [False] * (len(shards) - 1)
    assert quality["returns"]["mean"] == recorded_returns(shards).mean()
    with pytest.raises(UserError, match="holds a recording"):
        scripted.record(settings)


def test_other_games_have_no_script():
    with pytest.raises(UserError, match="only double_dunk has a script"):
        scripted.ScriptSettings(game="seaquest")
