"""Step 5: where does the time of a step go? Timings and samples per second, by rank.

`trainmaster trial timings TRIAL_ID` has the table, the trial's Profiler tab the charts. A timing costs less than two
microseconds. With several ranks the slow one is named, which all others wait for: blocks in which a rank waits for
its peers, such as DDP's backward pass, are marked by `timing("backward", waits=True)`.
"""

import logging
import random
import time

import determined as det

BATCH_SIZE = 32
STEPS = 60


def load() -> list[float]:
    time.sleep(random.uniform(0.01, 0.05))
    return [random.random() for _ in range(BATCH_SIZE)]


def train(batch: list[float]) -> float:
    time.sleep(0.06)
    return sum(batch) / len(batch)


def main(core_context: det.core.Context) -> None:
    profiler = core_context.profiler
    for steps_completed in range(1, STEPS + 1):
        with profiler.step(steps_completed):
            with profiler.timing("dataloader_next"):
                batch = load()
            with profiler.timing("train_batch"):
                loss = train(batch)
            profiler.count("samples", len(batch))
        if steps_completed % 10 == 0:
            logging.info(f"the loss is {loss:.3f}")
            core_context.train.report_training_metrics(steps_completed, {"loss": loss})
            core_context.train.report_progress(steps_completed / STEPS)
    core_context.train.report_validation_metrics(steps_completed, {"loss": loss})


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    with det.core.init() as core_context:
        main(core_context)
