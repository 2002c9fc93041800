"""A trial has one length: the searcher's and that of another package's trainer agree, or a sentence says so."""

from typing import Any

import pytest

from trainmaster._searcher_length import check_length

NAMES = ("max_steps", "num_train_epochs")


@pytest.mark.parametrize(
    ("searcher", "refused"),
    [
        ({}, None),
        ({"max_length": {"epochs": 3}}, None),
        (
            {"max_length": {"epochs": 4}},
            "searcher.max_length in the config is 4 epochs, but num_train_epochs",
        ),
        ({"max_length": {"batches": 3}}, "is 3 batches, but num_train_epochs of the trainer is 3.0 epochs"),
        ({"max_length": 3}, "without a unit"),
        ({"time_metric": "epochs", "max_time": 3}, None),
        ({"time_metric": "epochs", "max_time": 9}, "searcher.max_time in the config is 9 epochs"),
        ({"time_metric": "hours", "max_time": 9}, None),
    ],
)
def test_lengths_agree(searcher: dict[str, Any], refused: str | None) -> None:
    if refused is None:
        check_length(searcher, -1, 3.0, NAMES)
        return
    with pytest.raises(ValueError, match=refused):
        check_length(searcher, -1, 3.0, NAMES)


def test_steps_are_batches() -> None:
    check_length({"max_length": {"batches": 50}}, 50, 3.0, NAMES)
    with pytest.raises(ValueError, match="max_steps of the trainer is 49 batches"):
        check_length({"max_length": {"batches": 50}}, 49, 3.0, NAMES)
