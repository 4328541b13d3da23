"""The commands `python -m studies.atari ...`: record play, repeat a recording from its recipe, let agents play."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from fourier_head._devices import chosen_device
from fourier_head.commands import clear_errors, command
from studies.atari import rollouts, scripted
from studies.atari.collection import QUALITY, Collection, CollectSettings
from studies.atari.games import find_game
from studies.atari.recording import rebuild as play_again
from studies.atari.rollouts import load_agent, write_clip
from studies.common.command_line import in_lines

app = typer.Typer(help="Recordings of Atari play to learn from.", no_args_is_help=True)


def collect(settings: CollectSettings) -> None:
    """Train an agent (PQN) on many environments and record some of them: quality.json, recipe.npz."""
    collection, folder = Collection(settings), settings.folder
    try:
        done = collection.run(lambda fraction, words: typer.echo(f"{settings.game} {fraction:.0%}: {words}"))
    except KeyboardInterrupt:
        typer.echo(f"fourier-head: interrupted; {len(collection.shards)} shards are kept in {folder}.", err=True)
        raise typer.Exit(130) from None
    draw_quality(folder)
    rate = collection.step / max(collection.seconds, 1e-9)
    typer.echo(f"{collection.recorded} transitions in {folder}, {rate:.0f} steps a second.")
    if not done:
        typer.echo("The limit came first; the same command goes on.")


app.command("collect")(command(CollectSettings, collect))


def script(settings: scripted.ScriptSettings) -> None:
    """Record a script that plays DoubleDunk, which has not learned but gets less random: quality.json, recipe.npz."""
    quality = scripted.record(settings, lambda fraction, words: typer.echo(f"{settings.game} {fraction:.0%}: {words}"))
    draw_quality(settings.folder)
    typer.echo(
        f"{quality['transitions']} transitions in {settings.folder}, {quality['steps_per_second']:.0f} a second."
    )


app.command("script")(command(scripted.ScriptSettings, script))


@app.command()
def rebuild(
    recipe: Annotated[Path, typer.Argument(help="recipe.npz of a recording.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the recording to write.")],
) -> None:
    """Play a recipe again: the emulator is deterministic, so actions alone give back every frame."""
    with clear_errors():
        recording = play_again(recipe, output, in_lines(recipe.name, typer.echo))
        typer.echo(f"{len(recording)} transitions in {output}.")


@app.command()
def play(
    folder: Annotated[Path, typer.Argument(help="Of a trained arm, such as scratch/atari/arms/seaquest-...")],
    episodes: Annotated[int, typer.Option(min=1, max=128, help="Played at once.")] = 16,
    target: Annotated[
        float | None, typer.Option(help="Return to ask for.", show_default="what it was trained to be asked")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of emulators and actions.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="After which an episode is cut.")] = 4500,
    greedy: Annotated[bool, typer.Option(help="Take the likeliest action instead of a sample.")] = False,
    most: Annotated[float, typer.Option(min=0.1, max=1.0, help="Hold every action's probability down to this.")] = 1.0,
    clip: Annotated[Path | None, typer.Option(help="Write the best episode's end as a GIF.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.", show_default="cuda where there is one")] = "auto",
) -> None:
    """Let a trained Decision Transformer play: scores, and a clip if you want one."""
    with clear_errors():
        place = chosen_device(device)
        agent = load_agent(folder, place)
        goal = agent.target if target is None else target
        played = rollouts.play(
            agent.model,
            agent.about,
            target=goal,
            episodes=episodes,
            seed=seed,
            max_steps=steps,
            bfloat16=place.startswith("cuda"),
            greedy=greedy,
            most=most,
        )
        game, mean = find_game(agent.about.game), float(played.returns.mean())
        error = float(played.returns.std()) / len(played.returns) ** 0.5
        cut = f", {played.cut} of them cut" if played.cut else ""
        typer.echo(
            f"{game.title}, {episodes} episodes{cut}, asked for {goal:g}: mean score {mean:.1f} ± {error:.1f}, "
            f"normalised {game.normalise(mean):.2f}, {played.lengths.mean():.0f} steps each."
        )
        if clip is not None:
            write_clip(clip, agent.about, *played.best())
            typer.echo(f"Wrote {clip}.")


def draw_quality(folder: Path) -> None:
    """Draw the quality report of a recording beside it, where matplotlib is installed."""
    from fourier_head._files import write_atomically
    from fourier_head.pages.drawing import save_png
    from studies.atari.charts import quality_chart

    quality: dict[str, Any] = json.loads((folder / QUALITY).read_text(encoding="utf-8"))
    if find_spec("matplotlib") is None:
        typer.echo("quality.json has the numbers; its chart needs matplotlib.")
    elif quality["over_time"]:
        write_atomically(folder / "quality.png", lambda path: save_png(quality_chart(quality), path))


if __name__ == "__main__":
    app(prog_name="python -m studies.atari")
