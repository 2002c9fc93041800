"""A training that goes on where its last start has stopped, on whatever machine: run it again and again.

    python3 resume.py my-laptop-study

The external ids name the experiment and the trial; the latest checkpoint and its step come from the server.
"""

import sys

from determined.experimental import core_v2

STEPS_PER_START = 10


def main(study):
    config = core_v2.Config(
        name=f"detached-{study}",
        hparams={"decay": 0.9},
        external_experiment_id=study,
        external_trial_id=f"{study}-1",
    )
    with core_v2.init_context(config=config) as context:
        value, steps = restored(context)
        for _ in range(STEPS_PER_START):
            value *= context.info.trial.hparams["decay"]
            steps += 1
            context.train.report_training_metrics(steps_completed=steps, metrics={"value": value})
        with context.checkpoint.store_path({"steps_completed": steps}) as (path, _uuid):
            (path / "state").write_text(f"{steps} {value!r}")
        print(f"steps {steps}, value {value:.6f}; start this script again to continue from here")


def restored(context):
    """(value, steps completed) of the latest checkpoint, or of a beginning."""
    latest = context.info.latest_checkpoint
    if latest is None:
        return 1.0, 0
    with context.checkpoint.restore_path(latest) as path:
        steps, value = (path / "state").read_text().split()
    return float(value), int(steps)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "study")
