"""Which line of an effective config comes from the config, its template and the defaults."""

from commands.config import check, schema_of_config
from experiments.config import parse, schema
from submissions.config.ordering import set_values
from submissions.config.origins import OriginLine, explained
from submissions.config.places import placed
from submissions.config.problems import Problem
from trainmaster import yamltext

CONFIG = """name: x
entrypoint: python3 train.py
labels: [own]
searcher: {name: single, metric: loss, max_length: {batches: 1}}
resources: {slots_per_trial: 2}
hyperparameters: {lr: 0.1}
"""
TEMPLATE = {"labels": ["shared"], "resources": {"slots_per_trial": 4, "priority": 3}}


def test_each_line_names_its_origin_and_what_it_overrode() -> None:
    config = yamltext.load(CONFIG)
    lines = explained(schema.of_config, parse(CONFIG, template=TEMPLATE).effective(), config, TEMPLATE)
    assert (
        yamltext.load("\n".join(line.text for line in lines)) == parse(CONFIG, template=TEMPLATE).effective()
    )
    assert OriginLine("  slots_per_trial: 2", "config", "4", "1") in lines
    assert OriginLine("name: x", "config") in lines and OriginLine("  name: single", "config") in lines
    assert OriginLine("  priority: 3", "template") in lines
    assert [line for line in lines if line.text.startswith("- ")][:2] == [
        OriginLine("- shared", "template"),
        OriginLine("- own", "config"),
    ]
    assert OriginLine("    val: 0.1", "config") in lines  # one value, which the form spreads over a map
    assert OriginLine("max_restarts: 5", "default") in lines


def test_what_the_queue_has_changed_is_marked_with_what_was_submitted() -> None:
    config = yamltext.load(CONFIG)
    effective = parse(CONFIG, template=TEMPLATE).effective()
    effective["resources"] |= {"priority": 7, "max_slots": None}
    lines = explained(
        schema.of_config, effective, config, TEMPLATE, {"resources": {"priority": 3, "max_slots": 4}}
    )
    assert (
        OriginLine("  priority: 7", "queue", "3") in lines
        and OriginLine("  max_slots: null", "queue", "4") in lines
    )
    assert OriginLine("  slots_per_trial: 2", "config", "4", "1") in lines


def test_a_command_whose_text_is_not_kept_shows_what_differs_from_the_defaults() -> None:
    command = check({"entrypoint": "x", "resources": {"slots": 2, "weight": 1}}).effective()
    known = set_values(command, schema_of_config)
    assert known == {"entrypoint": "x", "description": "x", "resources": {"slots": 2}}
    lines = explained(schema_of_config, command, known, {})
    assert (
        OriginLine("  slots: 2", "config", "", "1") in lines
        and OriginLine("  weight: 1.0", "default") in lines
    )


def test_a_fault_stands_at_the_last_step_of_its_path_that_the_text_has() -> None:
    text = "a:\n  b.c:\n    - x\n    - {d: 1}\n"
    paths = {"<config>.a.b.c[1].d": 4, "<config>.a.b.c[1].e": 4, "<config>.a.z": 1, "<config>.q": None}
    found = placed(text, [Problem(path, "nothing", "something") for path in paths])
    assert {f"<config>.{each.path}": each.line for each in found} == paths
    assert found[-1].path == "q"
    assert placed("a: [", [Problem("<config>.a", "x", "y")])[0].line is None
