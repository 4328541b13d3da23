"""Emulators, the agent, and recordings: what is collected can be killed, continued, read and played again."""

import dataclasses
import gzip
import shutil

import numpy as np
import pytest
import torch

pytest.importorskip("ale_py")

from studies.atari import recording as records
from studies.atari.agent import AgentSettings, Learner, QNetwork, Rollout, lambda_returns
from studies.atari.collection import Collection, CollectSettings, measure_quality, recorded_returns
from studies.atari.dopamine import read_dopamine
from studies.atari.environment import Environments, FrameStack
from studies.atari.games import ACTIONS, EMULATOR_ACTIONS, FROM_EMULATOR, GAMES, TO_EMULATOR, find_game
from studies.atari.trajectories import IGNORED, Trajectories, stacks

from fourier_head.errors import UserError
from tests.studies.made_up_games import MadeUpEnvironments

pytestmark = pytest.mark.usefixtures("one_thread")


def tiny(folder, **more):
    options = {"transitions": 120, "steps": 240, "environments": 4, "shard": 40, "max_frames": 60} | more
    options |= {"rollout": 8, "epochs": 1, "minibatches": 1}
    return CollectSettings(game="seaquest", output=folder, device="cpu", **options)


@pytest.fixture(scope="module")
def made_up():
    """Let recordings be of a game whose emulators take no time to begin."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "Environments", MadeUpEnvironments)
        yield


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, made_up):
    """A collection that was killed while it wrote its second shard, and continued."""
    folder = tmp_path_factory.mktemp("recording")
    killed = Collection(tiny(folder))
    whole_write = killed._write

    def write(place):
        whole_write(place)
        if len(killed.shards) == 2:  # written beside the first checkpoint, not yet in its place
            raise RuntimeError("killed")

    killed._write = write
    with pytest.raises(RuntimeError, match="killed"):
        killed.run()
    assert not (folder / records.RECIPE).exists()
    assert len(records.load_recording(folder)) == 40  # what is kept can be read before it is all
    _, (first,) = records.read_recipe(folder / records.AGENT / records.RECIPE)
    continued = Collection(tiny(folder))
    assert continued.run()
    assert continued.learner.updates > killed.learner.updates - 10
    assert np.array_equal(shards(folder)[0].actions, first.actions)
    return folder


def shards(folder):
    return records.read_recipe(folder / records.RECIPE)[1]


def test_actions_are_ordered_round_the_compass_and_translate_back():
    ale_py = pytest.importorskip("ale_py")
    assert tuple(ale_py.Action(i).name for i in range(18)) == EMULATOR_ACTIONS
    assert [TO_EMULATOR[i] for i in FROM_EMULATOR] == list(range(18))
    assert sorted(ACTIONS) == sorted(EMULATOR_ACTIONS)
    assert ACTIONS[0] == "NOOP"
    assert ACTIONS[-1] == "FIRE"
    assert [name + "FIRE" for name in ACTIONS[1:9]] == list(ACTIONS[9:17])
    # Neighbours on the compass share a direction.
    way = {name: {part for part in ("UP", "DOWN", "LEFT", "RIGHT") if part in name} for name in ACTIONS[1:9]}
    circle = list(ACTIONS[1:9])
    assert all(way[a] & way[b] for a, b in zip(circle, circle[1:] + circle[:1], strict=True))


def test_an_action_moves_the_way_its_name_says():
    # Three equal games of Seaquest; what differs from the idle one after a while is where the submarine went.
    environments = Environments(find_game("seaquest"), [3, 3, 3], threads=1)
    environments.reset()
    held = np.array([ACTIONS.index(name) for name in ("LEFT", "RIGHT", "NOOP")])
    for _ in range(40):  # the game takes its time to begin
        step = environments.step(held)
    left, right, idle = step.frame.astype(float)
    columns = np.arange(84)
    place = [(np.abs(frame - idle).sum(0) * columns).sum() / np.abs(frame - idle).sum() for frame in (left, right)]
    assert place[0] < place[1] - 5


@pytest.mark.parametrize("name", GAMES)
def test_every_game_runs_with_raw_scores_and_single_frames(name):
    environments = Environments(GAMES[name], [1], threads=1, max_frames=12)
    first = environments.reset()
    assert first.shape == (1, 84, 84)
    assert first.dtype == np.uint8
    steps = [environments.step(np.array([17])) for _ in range(4)]
    assert any(step.ended.all() for step in steps)  # cut by max_frames
    assert all((step.lost_life >= step.ended).all() for step in steps)


@pytest.mark.parametrize("name", GAMES)
def test_normalised_scores_are_those_of_the_paper(name):
    game = GAMES[name]
    assert game.normalise(game.random) == 0
    assert game.normalise(game.human) == pytest.approx(100)


def test_unknown_games_and_too_many_environments_get_a_sentence(tmp_path):
    with pytest.raises(UserError, match="no game is called Pong"):
        find_game("Pong")
    with pytest.raises(ValueError, match="1 to 128"):
        Environments(GAMES["seaquest"], range(129))
    with pytest.raises(UserError, match="at most the 10 steps"):
        CollectSettings(output=tmp_path, game="seaquest", transitions=20, steps=10)
    with pytest.raises(UserError, match="environments must be at most 128"):
        CollectSettings(output=tmp_path, game="seaquest", environments=129)


def test_lambda_returns_are_the_recursion():
    torch.manual_seed(1)
    reward, best = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 3, dtype=torch.float64)
    ended = torch.rand(6, 3) < 0.3
    got = lambda_returns(reward, ended, best, 0.9, 0.65)
    for i in range(3):
        following = float(best[-1, i])
        for t in range(5, -1, -1):
            alive = 0.0 if ended[t, i] else 0.9
            following = float(reward[t, i]) + alive * (0.65 * following + 0.35 * float(best[t, i]))
            assert float(got[t, i]) == pytest.approx(following)


def test_learning_from_a_rollout_moves_values_towards_its_targets():
    torch.manual_seed(0)
    settings = AgentSettings(rollout=2, epochs=12, minibatches=1, learning_rate=1e-3)
    learner = Learner(QNetwork(width=32), settings, torch.Generator().manual_seed(0))
    rollout = Rollout(2, 2, torch.device("cpu"))
    rollout.states.random_(0, 255)
    rollout.actions.copy_(torch.tensor([[0, 5], [9, 17]]))
    rollout.reward.copy_(torch.tensor([[100.0, -3.0], [0.0, 20.0]]))  # clipped to their signs
    rollout.ended.fill_(1.0)

    def error():
        with torch.no_grad():
            values = learner.network(rollout.states.flatten(0, 1)).gather(-1, rollout.actions.reshape(-1, 1))[:, 0]
        return float((values - torch.tensor([1.0, -1.0, 0.0, 1.0])).square().mean())

    before = error()
    learner.learn_from(rollout, torch.zeros(2))
    assert learner.updates == 0
    learner.finish()
    assert learner.updates == 12
    assert learner.updates_per_step == 6
    assert error() < 0.5 * before


def test_random_actions_have_the_share_asked_for():
    learner = Learner(QNetwork(width=8), AgentSettings(), torch.Generator().manual_seed(0))
    stack = torch.zeros(1, 4, 84, 84, dtype=torch.uint8)
    greedy = {int(learner.act(stack, 0.0)[0]) for _ in range(5)}
    explored = {int(learner.act(stack, 1.0)[0]) for _ in range(20)}
    assert len(greedy) == 1
    assert len(explored) > 5


def test_a_killed_collection_loses_one_shard_and_continues(recorded):
    found = records.load_recording(recorded)
    assert len(found) == 120
    kept = shards(recorded)
    assert [shard.fresh for shard in kept] == [True, True, False]
    assert set(found.streams) == {0, 20, 40, 80, 120}
    # A stream's stretches follow each other.
    assert np.array_equal(found.actions[40:80], np.concatenate([kept[1].actions[0], kept[2].actions[0]]))
    assert (np.diff(found.moments[40:80]) == 4).all()
    assert len(list(recorded.glob("frames-*"))) == 1  # those of the recording before it was killed are gone


def test_frames_are_those_that_the_agent_saw(tmp_path, made_up, monkeypatch):
    seen = []
    receive = MadeUpEnvironments.receive
    monkeypatch.setattr(MadeUpEnvironments, "receive", lambda self: seen.append(receive(self)) or seen[-1])
    assert Collection(tiny(tmp_path, transitions=40, steps=80)).run()
    frames = np.stack([step.frame for step in seen], axis=1)[:2]  # of four environments two are recorded
    found = records.load_recording(tmp_path).frames.reshape(2, 20, 84, 84)
    assert np.array_equal(found[:, 1:], frames[:, :19])


def test_other_options_on_the_same_folder_are_refused(recorded):
    with pytest.raises(UserError, match="another seed"):
        Collection(tiny(recorded, seed=5)).run()


def test_any_seed_makes_a_recording_that_plays_again(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "Environments", Environments)  # the real ones
    settings = tiny(tmp_path / "first", seed=-(10**7), transitions=12, steps=12, environments=2, shard=12)
    assert Collection(settings).run()
    assert len(records.rebuild(tmp_path / "first" / records.RECIPE, tmp_path / "again")) == 12
    first, second = (records.load_recording(tmp_path / name) for name in ("first", "again"))
    assert np.array_equal(first.frames, second.frames)


def test_seeds_that_the_emulator_would_not_keep_are_refused():
    for seeds in ([0, -1], [2**31]):
        with pytest.raises(ValueError, match="seeds must lie in 0"):
            Environments(GAMES["seaquest"], seeds)


def test_however_short_the_limit_something_is_kept(tmp_path, made_up):
    stopped = Collection(tiny(tmp_path, limit=1e-9))
    assert not stopped.run()
    assert stopped.recorded == 2
    assert len(records.load_recording(tmp_path)) == 2


def test_a_recording_made_elsewhere_is_not_collected_over(recorded, tmp_path):
    folder = tmp_path / "travelled"
    shutil.copytree(recorded, folder)
    shutil.rmtree(folder / "agent")
    with pytest.raises(UserError, match="made elsewhere"):
        Collection(tiny(folder)).run()
    assert len(shards(folder)) == 3


def test_a_finished_collection_is_left_alone(recorded):
    before = (recorded / records.RECIPE).read_bytes(), (recorded / "agent" / "learner.pt").stat().st_mtime_ns
    assert Collection(tiny(recorded)).run()
    after = (recorded / records.RECIPE).read_bytes(), (recorded / "agent" / "learner.pt").stat().st_mtime_ns
    assert before == after


def test_a_recipe_plays_back_every_frame(recorded, tmp_path):
    recipe = recorded / records.RECIPE
    assert recipe.stat().st_size < 10_000
    assert len(shards(recorded)) == 3
    assert len(records.rebuild(recipe, tmp_path / "again")) == 120
    assert (tmp_path / "again" / records.RECIPE).read_bytes() == recipe.read_bytes()
    first, second = records.load_recording(recorded), records.load_recording(tmp_path / "again")
    for name in ("frames", "actions", "rewards", "ended", "moments", "streams"):
        assert np.array_equal(getattr(first, name), getattr(second, name)), name


def test_a_recipe_that_does_not_play_as_recorded_is_refused(recorded, tmp_path):
    about, (first, *others) = records.read_recipe(recorded / records.RECIPE)
    wrong = dataclasses.replace(first, rewards=first.rewards + 1)
    records.write_recipe(tmp_path / "wrong.npz", about, [wrong, *others])
    with pytest.raises(UserError, match="does not play as recorded"):
        records.rebuild(tmp_path / "wrong.npz", tmp_path / "again")
    assert not list((tmp_path / "again").iterdir())


def test_a_recipe_is_not_played_into_another_recording(recorded, tmp_path):
    other = tmp_path / "other"
    about, (first, *others) = records.read_recipe(recorded / records.RECIPE)
    for kept in ([dataclasses.replace(first, actions=17 - first.actions), *others], [first, *others[:1]]):
        for place in (other / records.RECIPE, other / records.AGENT / records.RECIPE):  # collected, or under way
            records.write_recipe(place, about, kept)
            before = place.read_bytes()
            with pytest.raises(UserError, match="another recording"):
                records.rebuild(recorded / records.RECIPE, other)
            assert [path for path in other.rglob("*") if path.is_file()] == [place]
            assert place.read_bytes() == before
            shutil.rmtree(other)


def test_damaged_files_get_a_sentence(recorded, tmp_path):
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 not much of an archive")
    np.savez(tmp_path / "other.npz", about=np.zeros(3))
    for name in ("broken.npz", "other.npz"):
        with pytest.raises(UserError, match="no recipe"):
            records.rebuild(tmp_path / name, tmp_path / "x")
    with pytest.raises(UserError, match="does not exist"):
        records.rebuild(tmp_path / "none.npz", tmp_path / "x")
    assert not (tmp_path / "x").exists()
    with pytest.raises(UserError, match="holds no recording"):
        records.load_recording(tmp_path)


def test_quality_reports_returns_and_actions(recorded):
    about, kept = records.read_recipe(recorded / records.RECIPE)
    report = measure_quality(about, kept, [(40, 20.0, 10), (200, 40.0, 10)], 240, 2.0)
    assert report["transitions"] == 120
    assert report["steps_per_second"] == 120
    assert sum(report["first_third"]) == pytest.approx(1, abs=1e-3)
    assert [row["mean"] for row in report["over_time"]] == [20.0, 40.0]
    assert len(recorded_returns(kept)) == report["episodes"] > 0


def test_windows_hold_what_an_agent_would_have_seen(recorded):
    found = records.load_recording(recorded)
    data = Trajectories(found, context=6)
    rows = data.train[torch.randint(len(data), (40,), generator=torch.Generator().manual_seed(0))]
    window = data.window(rows)
    whole = stacks(window.frames)
    ends = np.flatnonzero(found.ended)
    checked = 0
    for i in range(len(rows)):
        begin = int(rows[i])
        # Where the window begins follows from its timestep: count back to the episode's first transition.
        first = max([int(e) + 1 for e in ends if e < begin] + [int(s) for s in found.streams if s <= begin])
        begin = first + int(window.timestep[i])
        stack = FrameStack(torch.from_numpy(np.array(found.frames[first]))[None])
        for t in range(first, begin + 6):
            if t > first:
                stack.push(torch.from_numpy(np.array(found.frames[t]))[None], torch.tensor([False]))
            if t >= begin and window.target[i, t - begin] != IGNORED:
                assert torch.equal(whole[i, t - begin], stack.frames[0])
                assert window.actions[i, t - begin] == found.actions[t]
                last = min(int(e) for e in ends if e >= t)
                assert window.returns[i, t - begin] == found.rewards[t : last + 1].sum()
                checked += 1
    assert checked > 100


def test_less_data_is_a_part_of_all_and_none_of_it_held_out(recorded):
    found = records.load_recording(recorded)
    whole, part = Trajectories(found, 4, held_out=3), Trajectories(found, 4, share=0.5, held_out=3)
    assert set(part.train.tolist()) < set(whole.train.tolist())
    assert not set(whole.train.tolist()) & set(whole.held_out.tolist())
    with pytest.raises(ValueError, match="share must lie"):
        Trajectories(found, 4, share=0)


def write_dopamine(folder, number, count, rng):
    arrays = {
        "observation": rng.integers(0, 255, (count, 84, 84), dtype=np.uint8),
        "action": rng.integers(0, 18, count, dtype=np.int32),
        "reward": rng.integers(-1, 2, count).astype(np.float32),
        "terminal": (np.arange(count) % 7 == 6).astype(np.uint8),
    }
    for name, array in arrays.items():
        with gzip.open(folder / f"$store$_{name}_ckpt.{number}.gz", "wb") as file:
            np.save(file, array, allow_pickle=False)
    return arrays


def test_the_dqn_replay_format_is_read_and_its_actions_translated(tmp_path):
    rng = np.random.default_rng(0)
    written = {number: write_dopamine(tmp_path, number, 20, rng) for number in (3, 11)}
    found = read_dopamine(tmp_path, "Seaquest", transitions=30)
    assert found.about.game == "seaquest"
    with pytest.raises(ValueError, match="transitions must be at least 1"):
        read_dopamine(tmp_path, "seaquest", transitions=-5)
    assert len(found) == 30
    assert found.streams.tolist() == [0, 15, 30]
    assert np.array_equal(found.frames[15:], written[11]["observation"][:15])
    names = [EMULATOR_ACTIONS[a] for a in written[3]["action"][:15]]
    assert [ACTIONS[a] for a in found.actions[:15]] == names
    assert np.array_equal(found.rewards[:15], written[3]["reward"][:15].astype(int))
    assert len(read_dopamine(tmp_path, "seaquest", None, [3])) == 20
    assert len(Trajectories(found, 4)) > 0


def test_files_that_are_not_of_that_format_get_a_sentence(tmp_path):
    with pytest.raises(UserError, match="holds no"):
        read_dopamine(tmp_path, "seaquest")
    rng = np.random.default_rng(0)
    write_dopamine(tmp_path, 0, 5, rng)
    (tmp_path / "$store$_reward_ckpt.0.gz").unlink()
    with pytest.raises(UserError, match="does not exist"):
        read_dopamine(tmp_path, "seaquest")
    write_dopamine(tmp_path, 0, 5, rng)
    with gzip.open(tmp_path / "$store$_action_ckpt.0.gz", "wb") as file:
        np.save(file, np.array([{"a": 1}] * 5, dtype=object), allow_pickle=True)
    with pytest.raises(UserError, match="no gzipped array"):
        read_dopamine(tmp_path, "seaquest")
    with gzip.open(tmp_path / "$store$_action_ckpt.0.gz", "wb") as file:
        np.save(file, np.full(5, 18))
    with pytest.raises(UserError, match="outside 0 to 17"):
        read_dopamine(tmp_path, "seaquest")
    write_dopamine(tmp_path, 0, 5, rng)
    path = tmp_path / "$store$_observation_ckpt.0.gz"
    content = bytearray(path.read_bytes())
    content[1000:1100] = bytes(100)
    path.write_bytes(content)
    with pytest.raises(UserError, match="no gzipped array"):
        read_dopamine(tmp_path, "seaquest")
    with pytest.raises(UserError, match="no game is called pong"):
        read_dopamine(tmp_path, "pong")
