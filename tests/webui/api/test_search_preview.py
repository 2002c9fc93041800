"""A search before it is submitted: over REST, and in the terminal."""

from tests.rig.api import Cast, Json
from trainmaster.cli import preview_search

ADAPTIVE = {
    "name": "adaptive",
    "hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": 1}},
    "searcher": {"name": "async_halving", "metric": "loss", "num_rungs": 2, "max_trials": 8, "divisor": 4},
    "resources": {"slots_per_trial": 2},
}


def asked(**searcher: object) -> Json:
    return {"config": {**ADAPTIVE, "searcher": {**ADAPTIVE["searcher"], **searcher}}}  # type: ignore[dict-item]


def test_a_search_is_previewed_with_its_rungs_and_totals(cast: Cast) -> None:
    summary = cast.vic.post("preview-hp-search", asked(max_length={"epochs": 8}))["summary"]
    assert summary["config"]["divisor"] == 4
    assert [each["unit"] for each in summary["trials"]] == [
        {"name": "epochs", "value": 2, "maxLength": False},
        {"name": "epochs", "value": 8, "maxLength": False},
    ]
    assert sum(each["count"] for each in summary["trials"]) == summary["totalTrials"] == 8
    (bracket,) = summary["brackets"]
    first, last = bracket["rungs"]
    assert (first["units"], first["trials"]) == (2, 8)
    assert first["promoted"] == last["trials"] == summary["trials"][1]["count"]
    assert summary["expectedUnits"] == 8 * 2 + 2 * 6
    assert summary["totalUnits"] == 8 * 2 + last["trials"] * 6 and summary["slotsPerTrial"] == 2


def test_a_search_that_cannot_be_previewed_says_why(cast: Cast) -> None:
    grid = {**ADAPTIVE, "searcher": {"name": "grid", "metric": "loss"}}
    for body, sentence in (
        ({"config": []}, "a map"),
        ({"config": {"searcher": {"name": "pbt"}}}, "pbt was removed"),
        ({"config": grid}, "required by the grid searcher"),
        (asked(max_length=8, max_trials=20_000), "20,000 trials; a preview can simulate at most 10,000"),
    ):
        status, answer = cast.vic.send("POST", "preview-hp-search", body)
        assert status == 400 and sentence in str(answer), body


def test_the_terminal_shows_bars_and_the_cost(cast: Cast) -> None:
    summary = cast.vic.post("preview-hp-search", asked(max_length={"epochs": 8}))["summary"]
    cost = preview_search._cost(summary, 1800.0)
    assert cost["slotHours"] == summary["totalUnits"]
    text = "\n".join(preview_search._lines(summary, cost))
    assert "async_halving: 8 trials" in text and "Rung at epochs" in text and "█" in text
    assert f"{summary['totalUnits']} epochs {preview_search.SIMULATED}" in text
    assert f"≈ 28 epochs {preview_search.IF_KEPT}. {preview_search.WHY_OTHERWISE}" in text
    assert f"Cost: {summary['totalUnits']:,.1f} slot-hours at 2 slots per trial" in text
