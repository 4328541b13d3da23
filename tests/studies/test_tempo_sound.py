"""The clips of the tempo study: sound that has the tempo it says, features as transformers computes them, SynTheory."""

import csv
import math
import wave

import numpy as np
import pytest
import torch
from studies.tempo import clicks, data, syntheory

from fourier_head.errors import UserError

pytest.importorskip("transformers")


def _clips(count=8, **fixed):
    drawn = clicks.draw_clips(torch.full((count,), 120.0), torch.Generator().manual_seed(3))
    return clicks.Clips(**vars(drawn) | {k: torch.full((count,), v) for k, v in fixed.items()})


@pytest.mark.parametrize("bpm", [50, 97, 180])
@pytest.mark.parametrize("timbre", range(len(clicks.TIMBRES)))
def test_clicks_come_at_the_tempo(bpm, timbre):
    """The envelope of a clip without noise or accents repeats after one period and not before."""
    clip = _clips(1, bpm=float(bpm), timbre=timbre, metre=0, noise=0.0)
    sound = clicks.render(clip, torch.Generator().manual_seed(0))[0]
    level = sound.abs().unfold(0, 160, 160).amax(-1)
    level = level - level.mean()
    similar = torch.stack([(level[lag:] * level[: len(level) - lag]).mean() for lag in range(20, 130)])
    found = 20 + int(similar.argmax())
    period = 60 / bpm * 100
    # Two periods fit equally well at fast tempos.
    assert min(abs(found - k * period) for k in (1, 2, 3)) < 2
    assert similar[: int(0.8 * period) - 20].max() < 0.6 * similar.max()


def test_accents_come_once_in_a_bar():
    clip = _clips(1, bpm=120.0, timbre=1, metre=3, phase=0.0, weak=0.5, gain=1.0, noise=0.0)
    sound = clicks.render(clip, torch.Generator().manual_seed(0), seconds=3.0)[0]
    peaks = sound.abs().unfold(0, 8000, 8000).amax(-1)
    strong = peaks > 0.75 * peaks.max()
    assert strong.tolist() == [True, False, False, True, False, False]


def test_the_same_seed_makes_the_same_sound_and_noise_has_its_level():
    first = data.generated(torch.tensor([60, 61]), 2, 16, seed=5, device="cpu")
    again = data.generated(torch.tensor([60, 61]), 2, 16, seed=5, device="cpu")
    other = data.generated(torch.tensor([60, 61]), 2, 16, seed=6, device="cpu")
    assert torch.equal(first.features, again.features)
    assert not torch.allclose(first.features, other.features)
    quiet = _clips(1, gain=0.0, noise=0.01)
    assert clicks.render(quiet, torch.Generator().manual_seed(0)).std().item() == pytest.approx(0.01, rel=0.02)


def test_tempos_are_checked():
    with pytest.raises(ValueError, match="between 20 and 400"):
        clicks.draw_clips(torch.tensor([5.0]), torch.Generator())


@pytest.mark.filterwarnings("ignore:At least one mel filter")
def test_features_equal_those_of_transformers():
    from transformers import ASTFeatureExtractor

    generator = torch.Generator().manual_seed(0)
    sound = clicks.render(clicks.draw_clips(torch.tensor([70.0, 133.0]), generator), generator, seconds=1.3)
    extractor = ASTFeatureExtractor(max_length=150)
    theirs = extractor([one.numpy() for one in sound], sampling_rate=16_000, return_tensors="pt")["input_values"]
    ours = clicks.fit_length(clicks.log_mel(sound), 150, clicks.AUDIOSET_MEAN, clicks.AUDIOSET_STD)
    torch.testing.assert_close(ours, theirs, atol=2e-3, rtol=0)
    assert (ours - theirs).abs().mean() < 1e-5
    short = ASTFeatureExtractor(max_length=100)
    theirs = short([sound[0].numpy()], sampling_rate=16_000, return_tensors="pt")["input_values"][0]
    cut = clicks.fit_length(clicks.log_mel(sound[0]), 100, clicks.AUDIOSET_MEAN, clicks.AUDIOSET_STD)
    torch.testing.assert_close(cut, theirs, atol=2e-3, rtol=0)


def test_features_say_what_is_wrong():
    with pytest.raises(ValueError, match="at least 400 samples"):
        clicks.log_mel(torch.zeros(100))
    with pytest.raises(ValueError, match="std must be positive"):
        clicks.fit_length(torch.zeros(3, 4), 3, 0.0, 0.0)


def _write_wave(path, samples, rate=44_100, channels=2, width=2):
    scaled = np.repeat((np.asarray(samples) * (2 ** (8 * width - 1) - 1))[:, None], channels, axis=1)
    if width == 3:
        content = np.ascontiguousarray(scaled.astype("<i4")).view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
    elif width == 1:
        content = (scaled + 128).astype(np.uint8).tobytes()
    else:
        content = scaled.astype(f"<i{width}").tobytes()
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(content)


def _tone(seconds=4.0, rate=44_100, hertz=440.0):
    return 0.5 * np.sin(2 * math.pi * hertz * np.arange(round(seconds * rate)) / rate)


def _syntheory(folder, tempos=(51, 52, 53, 54, 55, 57, 59)):
    folder.mkdir()
    rows = []
    for i, bpm in enumerate(tempos):
        name = f"{bpm}_bpm_taiko_offset_0.wav"
        _write_wave(folder / name, _tone(hertz=200.0 + bpm))
        rows.append({"row_id": i, "bpm": bpm, "click_config_name": "taiko", "offset_file_path": name})
        rows[-1] |= {"offset_time": "1.25", "is_silent": False}
    _write_wave(folder / "silent.wav", np.zeros(1000))
    rows.append(rows[0] | {"offset_file_path": "silent.wav", "is_silent": True})
    with open(folder / "info.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_wave_files_of_any_width_are_read(tmp_path, width):
    _write_wave(tmp_path / "a.wav", _tone(0.1), width=width)
    samples, rate = syntheory.read_wave((tmp_path / "a.wav").read_bytes())
    assert rate == 44_100
    np.testing.assert_allclose(samples.numpy(), _tone(0.1), atol=2.2 / 2 ** (8 * width - 1))


def test_resampling_keeps_the_tone():
    low = syntheory.resample(torch.from_numpy(_tone()).float(), 44_100)
    np.testing.assert_allclose(low.numpy(), _tone(rate=16_000), atol=1e-4)


def test_syntheory_is_read_from_its_own_folder(tmp_path):
    _syntheory(tmp_path / "tempos")
    sound, bpm = syntheory.read_tempos(tmp_path)
    assert bpm.tolist() == [51, 52, 53, 54, 55, 57, 59]
    assert sound.shape == (7, 64_000)
    np.testing.assert_allclose(sound[2].numpy(), _tone(rate=16_000, hertz=253.0), atol=1e-3)
    split = data.syntheory_split(str(tmp_path), 16, "cpu")
    assert split.train.bpm.tolist() == [51, 53, 55, 57]
    assert split.validation.bpm.tolist() == [59]
    assert split.test.bpm.tolist() == [52, 54]


def test_syntheory_is_read_from_the_hub_layout(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    _syntheory(tmp_path / "tempos", tempos=(120, 121))
    audio = [
        {"bytes": (tmp_path / "tempos" / f"{bpm}_bpm_taiko_offset_0.wav").read_bytes(), "path": f"{bpm}.wav"}
        for bpm in (120, 121)
    ]
    hub = tmp_path / "hub" / "tempos"
    hub.mkdir(parents=True)
    parquet.write_table(pa.table({"audio": audio, "bpm": [120.0, 121.0]}), hub / "train-00000-of-00001.parquet")
    sound, bpm = syntheory.read_tempos(tmp_path / "hub")
    assert bpm.tolist() == [120, 121]
    assert torch.equal(sound, syntheory.read_tempos(tmp_path)[0])
    parquet.write_table(pa.table({"bpm": [120]}), hub / "train-00000-of-00001.parquet")
    with pytest.raises(UserError, match="columns audio and bpm"):
        syntheory.read_tempos(hub)


def test_a_folder_that_is_not_syntheory_is_refused(tmp_path):
    with pytest.raises(UserError, match="is none"):
        syntheory.read_tempos(tmp_path / "missing")
    with pytest.raises(UserError, match=r"info\.csv or Parquet"):
        syntheory.read_tempos(tmp_path)
    (tmp_path / "a.wav").write_bytes(b"RIFF but not really")
    for table, words in (
        ("tempo\n5\n", "is missing"),
        ("bpm,offset_file_path\n60,../outside.wav\n", "no file of that folder"),
        ("bpm,offset_file_path\n60\n", "no file of that folder"),
        ("bpm,offset_file_path\n60,a.wav\n", r"a\.wav must be a WAV file"),
        ("bpm,offset_file_path\n60.5,a.wav\n", r"bpm must be a whole number, got 60\.5"),
        ("bpm,offset_file_path\nslow,a.wav\n", "bpm must be a whole number, got slow"),
    ):
        (tmp_path / "info.csv").write_text(table)
        with pytest.raises(UserError, match=words):
            syntheory.read_tempos(tmp_path)
