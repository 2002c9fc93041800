"""Step 2: save checkpoints, go on from the latest one, and leave when the slots are needed."""

from __future__ import annotations

import logging
import pathlib
import time

import determined as det


def save_state(x: int, steps_completed: int, trial_id: int, folder: pathlib.Path) -> None:
    (folder / "state").write_text(f"{x},{steps_completed},{trial_id}")


def load_state(trial_id: int, folder: pathlib.Path) -> tuple[int, int]:
    """x and the batch to start with; a checkpoint of another trial (a fork) lends its x only."""
    x, steps_completed, saved_by = (int(part) for part in (folder / "state").read_text().split(","))
    return x, steps_completed if saved_by == trial_id else 0


def main(
    core_context: det.core.Context, latest_checkpoint: str | None, trial_id: int, increment_by: int
) -> None:
    x, start = 0, 0
    if latest_checkpoint is not None:
        with core_context.checkpoint.restore_path(latest_checkpoint) as folder:
            x, start = load_state(trial_id, folder)
        logging.info(f"continuing from batch {start}, x is {x}")

    for batch in range(start, 100):
        x += increment_by
        steps_completed = batch + 1
        time.sleep(0.1)
        if steps_completed % 10 == 0:
            logging.info(f"x is now {x}")
            core_context.train.report_training_metrics(steps_completed=steps_completed, metrics={"x": x})
            core_context.train.report_progress(steps_completed / 100)
            with core_context.checkpoint.store_path({"steps_completed": steps_completed}) as (folder, _uuid):
                save_state(x, steps_completed, trial_id, folder)
            if core_context.preempt.should_preempt():
                logging.info("asked to make room: the checkpoint is saved, leaving")
                return
    core_context.train.report_validation_metrics(steps_completed=100, metrics={"x": x})


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    info = det.get_cluster_info()
    with det.core.init() as core_context:
        main(
            core_context,
            latest_checkpoint=info.latest_checkpoint if info else None,
            trial_id=info.trial.trial_id if info else 0,
            increment_by=1,
        )
