"""Step 0: a program as it is. Nothing in it knows of Trainmaster; its output is the trial's log."""

import logging
import time


def main(increment_by: int) -> None:
    x = 0
    for batch in range(100):
        x += increment_by
        time.sleep(0.1)
        if (batch + 1) % 10 == 0:
            logging.info(f"x is now {x}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    main(increment_by=1)
