"""Step 1: report metrics and progress, and see them as curves on the trial's page."""

import logging
import time

import determined as det


def main(core_context: det.core.Context, increment_by: int) -> None:
    x = 0
    for batch in range(100):
        x += increment_by
        steps_completed = batch + 1
        time.sleep(0.1)
        if steps_completed % 10 == 0:
            logging.info(f"x is now {x}")
            core_context.train.report_training_metrics(steps_completed=steps_completed, metrics={"x": x})
            core_context.train.report_progress(steps_completed / 100)
    core_context.train.report_validation_metrics(steps_completed=steps_completed, metrics={"x": x})


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    with det.core.init() as core_context:
        main(core_context, increment_by=1)
