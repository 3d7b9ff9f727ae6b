"""The command line: options and printing only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tickgp.training.config import Config

if TYPE_CHECKING:
    from tickgp.training.loop import Progress as Event


def main() -> None:
    """`tickgp`: exit 0, 1 when a run failed, 2 when it was asked wrongly."""
    app = tyro.extras.SubcommandApp()
    app.command(name="train")(train)
    app.command(name="data")(data)
    try:
        app.cli(prog="tickgp", description="Image classification with Gaussian processes you can trust.")
    except (ValueError, ArithmeticError) as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"tickgp: {error}", style="red", markup=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def train(config: Annotated[Config, tyro.conf.arg(name="")]) -> None:
    """Train a model, then print how good its probabilities are on images it has not seen."""
    import jax
    import numpy as np

    from tickgp.data.dataset import load_dataset
    from tickgp.evaluation.bound import dataset_elbo
    from tickgp.evaluation.metrics import calibration_error, nll, top_error
    from tickgp.gp.predict import predict
    from tickgp.training.assemble import build_model
    from tickgp.training.loop import inverse_decay
    from tickgp.training.loop import train as run

    dataset, settings = load_dataset(config.dataset), config.training
    key_model, key_training, key_test, key_elbo = jax.random.split(jax.random.key(config.seed), 4)
    model = build_model(config.model, dataset, key=key_model)
    title = f"{config.model.name} on {dataset.name}"
    with _progress(title, settings.max_steps) as show:
        for event in run(
            model,
            dataset.train.images,
            dataset.train.labels,
            steps=settings.max_steps,
            batch_size=settings.batch_size,
            learning_rate=inverse_decay(settings.learning_rate, settings.decay_steps),
            report_every=max(settings.max_steps // 100, 1),
            key=key_training,
        ):
            show(event)
    model = event.state.model
    prediction = predict(model, dataset.test.images, key=key_test, num_samples=config.prediction_samples)
    probabilities, labels = np.asarray(prediction.probabilities), dataset.test.labels
    bound = dataset_elbo(model, dataset.train.images, dataset.train.labels, key=key_elbo)
    table = Table("error", "NLL", "ECE", "ELBO", title=f"{title}: {len(labels)} test images")
    table.add_row(
        f"{100 * top_error(probabilities, labels):.2f} %",
        f"{nll(probabilities, labels):.4f}",
        f"{calibration_error(probabilities, labels):.4f}",
        f"{bound:.1f}",
    )
    Console().print(table)


def data() -> None:
    """List the datasets."""
    from tickgp.data.dataset import READERS, load_dataset

    table = Table("name", "train", "test", "image", "classes")
    for name in READERS:
        dataset = load_dataset(name)
        size = "×".join(map(str, dataset.train.images.shape[1:]))
        table.add_row(name, str(len(dataset.train)), str(len(dataset.test)), size, str(len(dataset.class_names)))
    Console().print(table)


@contextmanager
def _progress(title: str, steps: int) -> Iterator[Callable[[Event], None]]:
    """A progress bar on a terminal; lines, one for each tenth of the way, where there is none."""
    console = Console()
    if not console.is_terminal:
        yield lambda event: _line(console, event, steps)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]} ELBO {task.fields[elbo]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=steps, rate="compiling", elbo="")
        yield lambda event: bar.update(
            task, completed=event.step, rate=f"{event.step / event.seconds:.0f}/s", elbo=f"{event.elbo:.1f}"
        )


def _line(console: Console, event: Event, steps: int) -> None:
    if event.step % max(steps // 10, 1) == 0 or event.step == steps:
        console.print(f"step {event.step} of {steps}  ELBO {event.elbo:.1f}  {event.seconds:.0f} s", highlight=False)
