"""One process: metrics, a checkpoint, and all that it prints.

python3 plain.py
"""

import random

from determined.experimental import core_v2

EPOCHS = 20


def main():
    core_v2.init(config=core_v2.Config(name="detached-plain", hparams={"learning_rate": 0.1}))
    learning_rate = core_v2.info.trial.hparams["learning_rate"]
    print("See the experiment at:", core_v2.url_reverse_webui_exp_view())
    weight = 5.0
    for epoch in range(1, EPOCHS + 1):
        weight -= learning_rate * 2 * weight + random.gauss(0, 0.01)
        core_v2.train.report_training_metrics(steps_completed=epoch, metrics={"loss": weight**2})
        core_v2.train.report_progress(epoch / EPOCHS)
        print(f"epoch {epoch}: weight {weight:.4f}")
    core_v2.train.report_validation_metrics(steps_completed=EPOCHS, metrics={"loss": weight**2})
    with core_v2.checkpoint.store_path({"steps_completed": EPOCHS}) as (path, _uuid):
        (path / "weight").write_text(str(weight))
    core_v2.close()


if __name__ == "__main__":
    main()
