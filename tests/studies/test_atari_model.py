"""The Decision Transformer: what it sees and must not see, its training, and play that sees what training saw."""

import dataclasses
import itertools
import json
import time

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

pytest.importorskip("ale_py")
pytest.importorskip("accelerate")

from studies.atari import recording as records
from studies.atari.__main__ import app
from studies.atari.agent import AgentSettings, Learner, QNetwork, Rollout
from studies.atari.games import ACTIONS
from studies.atari.model import DecisionTransformer, FrameEncoder, ModelSettings, action_head
from studies.atari.recording import About, Recording
from studies.atari.rollouts import OutOfTime, _drawn, _Emulators, _Reader, hold_down, load_agent, play, replay
from studies.atari.training import ArmSettings, epoch_steps, heldout_scores, train_arm
from studies.atari.trajectories import IGNORED, Trajectories
from studies.common.recorded import Recorded

from fourier_head.errors import UserError
from fourier_head.training import graphs
from tests.studies.made_up_games import MadeUpEnvironments

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = ModelSettings(layers=2, heads=2, width=16, context=4, dropout=0.0, timesteps=50)


@pytest.fixture
def recording():
    """Play that never happened: four short episodes of noise."""
    rng = np.random.default_rng(0)
    count = 48
    return Recording(
        About("seaquest", max_frames=120),
        rng.integers(0, 255, (count, 84, 84), dtype=np.uint8),
        rng.integers(0, 18, count).astype(np.uint8),
        rng.integers(0, 2, count).astype(np.int32),
        np.arange(count) % 12 == 11,
        np.arange(count),
        np.array([0, 24, count]),
    )


def small(kind="linear", frequencies=None, gamma=0.0, settings=SMALL):
    torch.manual_seed(0)
    return DecisionTransformer(settings, action_head(kind, settings.width, frequencies, gamma))


def test_the_paper_size_has_two_million_parameters():
    model = DecisionTransformer(ModelSettings(), action_head("linear", 128))
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(2.012e6, rel=0.02)


def test_the_first_convolution_is_that_of_8_by_8():
    encoder = FrameEncoder(8)
    x = torch.rand(2, 4, 84, 84)
    weight = encoder.convolutions[0].weight  # (32, 64, 2, 2); channel = frame * 16 + row * 4 + column
    plain = weight.view(32, 4, 4, 4, 2, 2).permute(0, 1, 4, 2, 5, 3).reshape(32, 4, 8, 8)
    expected = torch.nn.functional.conv2d(x, plain, encoder.convolutions[0].bias, stride=4)
    got = encoder.convolutions[0](torch.nn.functional.pixel_unshuffle(x, 4))
    assert torch.allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "frequencies", "gamma"), [("linear", None, 0.0), ("fourier", 4, 1e-6), ("fourier", 20, 0.0)]
)
def test_any_head_trains_every_parameter(recording, kind, frequencies, gamma):
    model = small(kind, frequencies, gamma)
    window = Trajectories(recording, 4).sample(2, torch.Generator().manual_seed(0))
    model.train()
    model(*window).backward()
    missing = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert missing == []
    model.eval()
    pmf = model.pmf(model.read(*window[:4]))
    assert pmf.shape == (2, 4, len(ACTIONS))
    assert torch.allclose(pmf.sum(-1), torch.ones(2, 4), atol=1e-4)


def test_a_step_sees_its_past_and_nothing_of_its_own_action_or_later(recording):
    model = small().eval()
    frames, actions, returns, timestep, _ = Trajectories(recording, 4).window(torch.tensor([0]))
    before = model.read(frames, actions, returns, timestep)
    other = actions.clone()
    other[:, 2] = (other[:, 2] + 1) % 18
    after = model.read(frames, other, returns, timestep)
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3], after[:, 3])
    later = frames.clone()
    later[:, -1] = 0
    assert torch.equal(before[:, :3], model.read(later, actions, returns, timestep)[:, :3])
    asked = returns.clone()
    asked[:, 0] += 5
    assert not torch.allclose(before[:, 0], model.read(frames, actions, asked, timestep)[:, 0])


def test_steps_after_the_end_of_an_episode_do_not_count(recording):
    model, data = small().eval(), Trajectories(recording, 20)
    model.settings = ModelSettings(context=20)
    window = data.window(torch.tensor([3]))
    assert (window.target == IGNORED).sum() == 8
    assert int(window.timestep) == 0


def test_held_out_distributions_are_of_steps_that_were_played(recording):
    model = small(settings=dataclasses.replace(SMALL, context=20)).eval()
    torch.nn.init.normal_(model.of_place)
    # Episodes have 12 steps: in the longer contexts eight more follow, which must change nothing.
    whole, longer = (heldout_scores(model, Trajectories(recording, context), 8) for context in (12, 20))
    assert longer["smoothness"] == pytest.approx(whole["smoothness"], rel=1e-4)
    assert longer["examples"][0]["pmf"] == pytest.approx(whole["examples"][0]["pmf"], abs=1e-4)


def test_an_epoch_has_a_context_per_transition_and_hardly_more():
    for count in range(1, 1200):
        steps, every = epoch_steps(count, 1)
        assert count <= steps < count + 10
        assert steps % every == 0
        assert steps // every <= 10


def test_play_reads_the_contexts_that_training_reads(recording):
    model, data = small().eval(), Trajectories(recording, 4)
    first = torch.from_numpy(recording.frames[:1])
    reader = _Reader(model, first, 0.0, bfloat16=False)
    with torch.no_grad():
        for step in range(9):
            if step:
                reader.stack.push(torch.from_numpy(recording.frames[step : step + 1]), torch.tensor([False]))
            reader.to_go.copy_(data.to_go[step : step + 1])
            got = reader.look()
            begin = max(0, step - 3)
            expected = model.pmf(model.read(*data.window(torch.tensor([begin]))[:4]))[:, step - begin]
            assert torch.allclose(got, expected, atol=1e-6), step
            reader.acted(torch.tensor([int(recording.actions[step])]))


@pytest.fixture
def made_up(monkeypatch):
    """Let arms play a game whose emulators take no time to begin: what counts is when they play."""
    monkeypatch.setattr(records, "Environments", MadeUpEnvironments)


@pytest.mark.usefixtures("made_up")
def test_play_is_repeatable():
    about, options = About("seaquest", max_frames=48), {"target": 50.0, "episodes": 3, "seed": 3}
    model = small()
    model.train()
    first, second = play(model, about, **options), play(model, about, **options)
    assert model.training
    assert np.array_equal(first.actions, second.actions)
    assert len(set(first.returns)) > 1
    assert first.lengths.max() <= 12
    assert first.cut == 0
    _, score = replay(about, *first.best())
    assert score == first.returns.max()
    assert play(model, about, max_steps=3, **options).cut == 3


def test_an_episode_can_be_watched_again():
    about = About("seaquest", max_frames=48)
    played = play(small(), about, target=50.0, episodes=1, seed=3)
    frames, score = replay(about, *played.best())
    assert (score, len(frames)) == (played.returns[0], played.lengths[0] + 1)
    assert frames[0].shape == (210, 160, 3)


def test_samples_have_the_probabilities_given():
    pmf = torch.tensor([0.5, 0.0, 0.3, 0.2])
    drawn = _drawn(pmf.expand(20_000, 4), torch.Generator().manual_seed(0))
    shares = torch.bincount(drawn, minlength=4) / len(drawn)
    assert torch.allclose(shares, pmf, atol=0.015)


def test_emulators_of_finished_episodes_rest_and_others_play_as_they_would_in_a_vector():
    about, seeds = About("seaquest", max_frames=40), np.arange(2)
    emulators = _Emulators(about, seeds)
    vector = about.environments(seeds[1:].tolist(), threads=1)
    assert np.array_equal(emulators.reset()[1:], vector.reset())
    going = np.ones(2, dtype=bool)
    actions = np.array([1, 9])
    resting = emulators.step(actions, going).frame[:1].copy()
    vector.step(actions[1:])
    going[:1] = False
    for _ in range(5):
        both, expected = emulators.step(actions, going), vector.step(actions[1:])
        for ours, theirs in zip(both, expected, strict=True):
            assert np.array_equal(ours[1:], theirs)
        assert np.array_equal(both.frame[:1], resting)


def test_play_stops_at_its_deadline():
    model = small().train()
    with pytest.raises(OutOfTime):
        play(model, About("seaquest"), target=50.0, episodes=1, seed=0, deadline=time.monotonic() + 0.2)
    assert model.training


def arm(**more):
    options = {"epochs": 2, "samples": 24, "batch": 4, "layers": 1, "heads": 2, "width": 16, "context": 4}
    return ArmSettings(episodes=2, max_steps=6, held_out=8, **(options | more))


def steps_done(folder):
    return torch.load(folder / "checkpoint" / "state.pt", weights_only=True)["step"]


@pytest.mark.usefixtures("made_up")
def test_an_arm_stopped_while_it_plays_plays_that_epoch_later_and_ends_as_if_it_had_not_been(recording, tmp_path):
    settings = arm(head="fourier", frequencies=4, gamma=1e-6)
    whole = train_arm(recording, settings, tmp_path / "whole")
    for _ in range(2):  # at the end of the first epoch, and once more before that epoch is caught up
        assert train_arm(recording, settings, tmp_path / "parts", deadline=time.monotonic()) is None
        assert steps_done(tmp_path / "parts") == 6
        assert not (tmp_path / "parts" / "evaluations.json").exists()
    continued = train_arm(recording, settings, tmp_path / "parts")
    assert [epoch["epoch"] for epoch in continued["evaluations"]] == [1, 2]
    for one, other in zip(continued["evaluations"], whole["evaluations"], strict=True):
        assert one["returns"] == other["returns"]
        for key in ("heldout_loss", "smoothness", "return"):
            assert one[key] == pytest.approx(other[key], rel=1e-4)
    assert whole["evaluations"][0]["replay"] is None
    assert len(whole["evaluations"][1]["replay"]["actions"]) > 0
    assert whole["transitions"] == 36


@pytest.mark.usefixtures("made_up")
def test_time_to_catch_up_on_an_epoch_is_not_spent_twice(recording, tmp_path, monkeypatch):
    """By a clock that moves on by one whenever it is looked at, so that the same looks happen in every run."""
    looks = itertools.count(1000)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(looks)))
    settings = arm(samples=128)  # an epoch of 32 steps, with a look at every fourth and every tenth
    assert train_arm(recording, settings, tmp_path, deadline=time.monotonic() + 15) is None
    assert steps_done(tmp_path) == 32  # the time was over when the first epoch was to be played
    assert not (tmp_path / "evaluations.json").exists()
    # Ten looks go by before training goes on. It has five then; with all fifteen it would train to the next play.
    assert train_arm(recording, settings, tmp_path, deadline=time.monotonic() + 15) is None
    assert json.loads((tmp_path / "evaluations.json").read_text()).keys() == {"1"}
    assert 32 < steps_done(tmp_path) < 64


@pytest.mark.usefixtures("made_up")
def test_a_trained_agent_comes_back_from_its_folder_and_plays(recording, tmp_path):
    settings = arm(head="fourier", frequencies=4, gamma=1e-6, epochs=1)
    trained = train_arm(recording, settings, tmp_path / "arm")
    agent = load_agent(tmp_path / "arm")
    assert agent.about == recording.about
    assert agent.target == trained["target_return"]
    played = play(agent.model, agent.about, target=agent.target, episodes=2, seed=settings.seed, max_steps=6)
    assert played.returns.tolist() == trained["evaluations"][-1]["returns"]
    clip = tmp_path / "clip.gif"
    options = ["--episodes", "2", "--steps", "6", "--most", "0.5", "--clip", str(clip), "--device", "cpu"]
    shown = CliRunner().invoke(app, ["play", str(tmp_path / "arm"), *options])
    assert shown.exit_code == 0, shown.output
    assert f"Seaquest, 2 episodes, 2 of them cut, asked for {agent.target:g}: mean score" in shown.output
    assert clip.read_bytes().startswith(b"GIF8")
    (tmp_path / "arm" / "checkpoint").rename(tmp_path / "elsewhere")
    for folder, message in ((tmp_path / "arm", "holds no checkpoint yet"), (tmp_path, "holds no trained agent")):
        shown = CliRunner().invoke(app, ["play", str(folder), "--device", "cpu"])
        assert shown.exit_code == 2
        assert message in shown.output


def test_probabilities_held_down_keep_the_proportions_of_the_others():
    pmf = torch.tensor([[0.9, 0.06, 0.04], [0.4, 0.3, 0.3], [0.0, 1.0, 0.0]])
    held = hold_down(pmf, 0.5)
    assert torch.allclose(held, torch.tensor([[0.5, 0.3, 0.2], [0.4, 0.3, 0.3], [0.25, 0.5, 0.25]]))


def test_targets_are_of_the_data_of_the_paper_or_a_number(recording, tmp_path):
    from studies.atari.training import target_return

    data = Trajectories(recording, 4)
    assert target_return(ArmSettings(target="paper"), recording, data) == 1150
    assert target_return(ArmSettings(target="12.5"), recording, data) == 12.5
    data_target = target_return(ArmSettings(), recording, data)
    assert data.episode_returns.min() <= data_target <= data.episode_returns.max()
    with pytest.raises(UserError, match="target must be"):
        target_return(ArmSettings(target="high"), recording, data)


def test_a_head_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="head must map 16 features"):
        DecisionTransformer(SMALL, action_head("linear", 8))
    with pytest.raises(ValueError, match="with frequencies, got 'fourier' and None"):
        action_head("fourier", 8)
    with pytest.raises(ValueError, match="kind must be"):
        action_head("quantile", 8)


@pytest.mark.gpu
def test_play_on_a_gpu_replays_the_same_distributions(recording):
    model, data = small().eval(), Trajectories(recording, 4)
    on_gpu = small().eval().cuda()
    readers = [
        _Reader(m, torch.from_numpy(recording.frames[:2]).to(place), 0.0, bfloat16=False)
        for m, place in ((model, "cpu"), (on_gpu, "cuda"))
    ]
    looks = [Recorded(reader.look, reader.seen.device) for reader in readers]
    with torch.no_grad():
        for step in range(9):
            for reader in readers:
                place = reader.seen.device
                if step:
                    frame = torch.from_numpy(recording.frames[step : step + 2]).to(place)
                    reader.stack.push(frame, torch.zeros(2, dtype=torch.bool, device=place))
                reader.to_go.copy_(data.to_go[step : step + 2])
            first, second = (look().cpu() for look in looks)
            assert torch.allclose(first, second, atol=2e-2), step  # convolutions there are in TF32
            for reader in readers:
                reader.acted(torch.tensor([3, 4], device=reader.seen.device))


@pytest.mark.gpu
def test_arms_train_compiled_on_a_gpu(recording, tmp_path):
    for name, settings in (("a", arm()), ("b", arm(head="fourier", frequencies=4, gamma=1e-6))):
        result = train_arm(recording, settings, tmp_path / name, device="cuda", compile=True)
        assert [epoch["epoch"] for epoch in result["evaluations"]] == [1, 2]
        assert np.isfinite(result["evaluations"][-1]["heldout_loss"])


@pytest.mark.gpu
def test_an_agent_learns_the_same_recorded_as_launched_one_by_one(monkeypatch):
    settings = AgentSettings(rollout=2, epochs=4, minibatches=2, learning_rate=1e-3)
    found = []
    for plain_calls in (graphs.PLAIN_CALLS, 100):
        monkeypatch.setattr(graphs, "PLAIN_CALLS", plain_calls)
        torch.manual_seed(0)
        learner = Learner(QNetwork(width=32).cuda(), settings, torch.Generator("cuda").manual_seed(0))
        rollout = Rollout(2, 8, torch.device("cuda"))
        rollout.states.random_(0, 255, generator=torch.Generator("cuda").manual_seed(1))
        rollout.reward.fill_(1.0)
        learner.learn_from(rollout, torch.zeros(8, device="cuda"))
        learner.finish()
        assert learner.updates == 8
        assert (learner._descent._graph is not None) == (plain_calls < 8)
        found.append(learner.network(rollout.states.flatten(0, 1)).detach())
    assert torch.allclose(*found, atol=2e-2)
